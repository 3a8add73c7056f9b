"""D2 and D3, served: a picture in EXIF's eight orientations is one tensor and one answer; 16 bits keep their levels."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from PIL.Image import Transpose

from faults.turned_pictures import turned
from serving import Served, encoded
from vitscope.data.decode import decode_image
from vitscope.data.preprocess import to_pixels
from vitscope.infer.predictor import Predictor
from vitscope.serve.answers import Answers
from vitscope.serve.uploads import Upload


@pytest.fixture(scope="module")
def answers(small_model: Path) -> Answers:
    return Answers(Predictor.load(small_model, device="cpu"), pixel_limit=1_000_000)


def upright() -> Image.Image:
    coarse = np.random.default_rng(5).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((70, 50), Image.Resampling.NEAREST)


@pytest.mark.parametrize("file_format", ["PNG", "TIFF"])
def test_eight_orientations_are_one_tensor(answers: Answers, file_format: str) -> None:
    wanted = to_pixels(upright(), answers.predictor.preprocessing)
    assert not any(wanted.equal(wanted.flip(dims)) for dims in ((-1,), (-2,), (-1, -2)))
    for content in turned(upright(), file_format):
        assert answers.prepare(Upload(None, content)).equal(wanted)


def test_eight_orientations_are_one_answer_and_one_drawing(server: Served) -> None:
    files = turned(upright(), "PNG")
    assert len({str(server.post("/features", content).json()["features"]) for content in files}) == 1
    assert len({server.post("/explain", content).body for content in files}) == 1
    other = encoded(upright().transpose(Transpose.ROTATE_180))
    assert server.post("/features", other).json() != server.post("/features", files[0]).json()


def test_a_16_bit_gradient_keeps_its_levels(answers: Answers) -> None:
    ramp = np.linspace(0, 65535, 32 * 32).reshape(32, 32).astype(np.uint16)
    content = encoded(Image.fromarray(ramp))
    assert Image.open(io.BytesIO(content)).mode.startswith("I")
    pixels = answers.prepare(Upload("ramp.png", content))
    assert len(torch.unique(pixels)) > 200
    assert (int(pixels.min()), int(pixels.max())) == (0, 255)
    assert len(np.unique(np.asarray(answers.picture(Upload(None, content))))) > 200
    assert pixels.equal(to_pixels(decode_image(content), answers.predictor.preprocessing))
