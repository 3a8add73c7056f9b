"""What becomes of a picture, without HTTP: halves where memory runs out, overlays that lie where the model looks."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageFile
from torch import Tensor

from serving import TINY, picture
from vitscope.core.config import updated
from vitscope.core.errors import InputError
from vitscope.infer.explain.explain import METHODS, Method, explain
from vitscope.infer.predictor import Predictor
from vitscope.models.build import build_model
from vitscope.models.config import CNNConfig, MAEConfig
from vitscope.serve.answers import Answers
from vitscope.serve.features import pooled
from vitscope.serve.overlay import Wish, can_be_drawn, draw_overlay
from vitscope.serve.refusal import Refusal
from vitscope.serve.uploads import Upload


@pytest.fixture(scope="module")
def answers(small_model: Path) -> Answers:
    return Answers(Predictor.load(small_model, device="cpu"), pixel_limit=10_000)


def test_a_batch_that_does_not_fit_goes_in_halves(answers: Answers) -> None:
    images = [answers.prepare(Upload(None, picture(number))) for number in range(7)]
    seen: list[int] = []

    def question(batch: Tensor) -> Tensor:
        seen.append(len(batch))
        if len(batch) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return answers.predictor.probabilities(batch)

    whole = answers.ask(answers.predictor.probabilities, images)
    for found, wanted in zip(answers.ask(question, images), whole, strict=True):
        torch.testing.assert_close(found, wanted)
    assert max(count for count in seen if count <= 2) == 2

    def never(batch: Tensor) -> Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(torch.OutOfMemoryError):
        answers.ask(never, images)


def test_pixels_are_counted_before_anything_is_decoded(answers: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image.Image, "load", lambda self: pytest.fail("it was decoded"))
    for work in (answers.prepare, answers.picture, answers.pixels):
        for width, height in ((101, 100), (20_000, 10_000)):  # the last is beyond what Pillow opens by itself
            with pytest.raises(Refusal) as refused:
                work(Upload(None, encoded_large(width, height)))
            assert refused.value.status == 413


def test_no_memory_for_a_picture_is_not_its_fault(answers: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(_: Image.Image) -> None:
        raise MemoryError

    monkeypatch.setattr(ImageFile.ImageFile, "load", load)
    with pytest.raises(Refusal) as refused:
        answers.prepare(Upload(None, picture(0)))
    assert (refused.value.status, refused.value.headers()) == (503, {"retry-after": "1"})


def encoded_large(width: int, height: int) -> bytes:
    """A PNG's head alone, as nothing behind it may be read."""
    head = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunk = struct.pack(">I", 13) + head + struct.pack(">I", zlib.crc32(head))
    return b"\x89PNG\r\n\x1a\n" + chunk + struct.pack(">I", 0) + b"IDAT" + struct.pack(">I", zlib.crc32(b"IDAT"))


@pytest.mark.parametrize(
    "config",
    [
        updated(TINY, pool="mean", class_token=False),
        updated(TINY, num_registers=4),
        updated(TINY, img_size=(32, 48)),
        updated(TINY, in_chans=1),
    ],
    ids=["no class token", "registers", "not square", "grey"],
)
def test_every_vit_can_be_drawn(config: object) -> None:
    torch.manual_seed(0)
    predictor = Predictor(build_model(config), device="cpu")  # type: ignore[arg-type]
    assert can_be_drawn(predictor.model)
    shown = Image.fromarray(np.full((60, 90, 3), 128, np.uint8))
    drawn = draw_overlay(predictor, shown, Wish(layer=0))
    assert (drawn.size, drawn.mode) == ((90, 60), "RGB")
    assert len(np.unique(np.asarray(drawn))) > 3


@pytest.mark.parametrize("method", METHODS)
def test_what_is_drawn_is_what_explain_draws(method: Method) -> None:
    torch.manual_seed(0)
    predictor = Predictor(build_model(TINY), device="cpu")
    shown = Image.fromarray(np.random.default_rng(0).integers(0, 256, (80, 120, 3), dtype=np.uint8))
    wanted = explain(predictor, shown, method, layer=-1, target=1, draws=None).overlay()
    drawn = draw_overlay(predictor, shown, Wish(method=method, target=1))
    assert np.array_equal(np.asarray(drawn), np.asarray(wanted))


@pytest.mark.parametrize("wish", [Wish(layer=9), Wish(head=9), Wish(method="gradient_rollout", target=99)])
def test_what_the_model_has_not_is_the_askers_mistake(wish: Wish) -> None:
    predictor = Predictor(build_model(TINY), device="cpu")
    with pytest.raises(InputError, match="expected"):
        draw_overlay(predictor, Image.new("RGB", (32, 32)), wish)


def test_a_model_without_attention_says_so() -> None:
    predictor = Predictor(build_model(CNNConfig(num_classes=3)), device="cpu")
    assert not can_be_drawn(predictor.model)
    with pytest.raises(InputError, match="has no attention"):
        draw_overlay(predictor, Image.new("RGB", (32, 32)), Wish())


def test_features_are_pooled_as_the_model_does_and_of_masked_models_by_the_encoder() -> None:
    images = torch.randn(2, 3, 32, 32)
    model = build_model(TINY).eval()
    torch.testing.assert_close(pooled(model, images), model.forward_features(images)[:, 0])
    (taken,) = Predictor(model, device="cpu").features(images).values.values()
    torch.testing.assert_close(pooled(model, images), taken)
    encoder = updated(TINY, num_classes=0, position="sincos")
    masked = build_model(MAEConfig(encoder=encoder, decoder_embed_dim=16, decoder_depth=1, decoder_num_heads=2)).eval()
    assert pooled(masked, images).shape == (2, 32)
