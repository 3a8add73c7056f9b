"""A teacher sees what its own preprocessing would have shown it, and knows the student's classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms.v2 import functional as T

from vitscope.core.errors import ConfigError, VitscopeError
from vitscope.data.config import PreprocessConfig
from vitscope.data.preprocess import normalise
from vitscope.models.build import build_model
from vitscope.models.config import CNNConfig, ViTConfig
from vitscope.train.teacher import Teacher
from vitscope.weights.folder import save_model

NAMES = ["ant", "bee", "cat", "dog"]
HALF = PreprocessConfig(img_size=(16, 16))
IMAGENET = PreprocessConfig(img_size=(16, 16), mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))


def network(preprocess: PreprocessConfig = HALF, seed: int = 0, **settings: Any) -> Any:
    torch.manual_seed(seed)
    shape = {"img_size": preprocess.img_size, "patch_size": 8, "in_chans": preprocess.in_chans}
    small = {**shape, "embed_dim": 16, "depth": 1, "num_heads": 2, "num_classes": 4, "drop_rate": 0.5}
    model = build_model(ViTConfig(**{**small, **settings}))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    model.preprocessing = preprocess
    return model


def pixels(channels: int = 3, side: int = 16, count: int = 3) -> torch.Tensor:
    """Smooth pictures, as photographs are."""
    y, x = torch.meshgrid(torch.linspace(0, 3, side), torch.linspace(0, 2, side), indexing="ij")
    waves = [torch.sin(x * (1 + i) + y * (c + 1)) for i in range(count) for c in range(channels)]
    return (torch.stack(waves).view(count, channels, side, side) * 110 + 127).to(torch.uint8)


def test_alike_pictures_are_not_touched() -> None:
    model = network().train()  # whatever its mode was, it teaches in evaluation mode
    teacher = Teacher(model, student_preprocess=HALF)
    images = normalise(pixels(), HALF)
    assert teacher.seen(images) is images
    torch.testing.assert_close(teacher(images), model.eval()(images))
    assert not model.training
    assert torch.equal(teacher(images), teacher(images))


def test_nothing_flows_back() -> None:
    teacher = Teacher(network(), student_preprocess=IMAGENET)
    images = normalise(pixels(), IMAGENET).requires_grad_()
    assert not teacher(images).requires_grad
    assert not any(parameter.requires_grad for parameter in teacher.model.parameters())


def test_normalisation_becomes_the_teachers() -> None:
    teacher = Teacher(network(IMAGENET), student_preprocess=HALF)
    found = teacher.seen(normalise(pixels(), HALF))
    torch.testing.assert_close(found, normalise(pixels(), IMAGENET), atol=1e-5, rtol=1e-5)
    assert (found - normalise(pixels(), HALF)).abs().max() > 0.5


@pytest.mark.parametrize("side", [8, 40])
@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear", "nearest"])
def test_size_becomes_the_teachers(interpolation: Any, side: int) -> None:
    own = PreprocessConfig(img_size=(side, side), mean=IMAGENET.mean, std=IMAGENET.std, interpolation=interpolation)
    teacher = Teacher(network(own), student_preprocess=HALF)
    found = teacher.seen(normalise(pixels(), HALF))
    mode = T.InterpolationMode(interpolation)
    wanted = normalise(T.resize(pixels(), [side, side], interpolation=mode, antialias=True), own)
    assert found.shape == (3, 3, side, side)
    assert (found - wanted).abs().max() < 2 / 255 / min(own.std)  # the oracle rounds to whole pixel values
    assert teacher(normalise(pixels(), HALF)).shape == (3, 4)


@pytest.mark.parametrize(("student_chans", "own_chans"), [(1, 3), (3, 1)])
def test_channels_become_the_teachers(student_chans: int, own_chans: int) -> None:
    def settings(channels: int, mean: float, std: float) -> PreprocessConfig:
        return PreprocessConfig(img_size=(16, 16), in_chans=channels, mean=(mean,) * channels, std=(std,) * channels)

    student, own = settings(student_chans, 0.3, 0.2), settings(own_chans, 0.6, 0.4)
    teacher = Teacher(network(own), student_preprocess=student)
    found = teacher.seen(normalise(pixels(student_chans), student))
    modes = {1: "L", 3: "RGB"}
    for picture, image in zip(pixels(student_chans), found, strict=True):
        plain = Image.fromarray(np.asarray(picture.permute(1, 2, 0)).squeeze())
        wanted = normalise(T.pil_to_tensor(plain.convert(modes[own_chans])), own)
        assert (image - wanted).abs().max() < 1 / 255 / 0.4


def test_loaded_from_a_model_folder_and_from_a_run(tmp_path: Path) -> None:
    model = network(IMAGENET).eval()
    save_model(model, tmp_path / "run" / "model", labels=NAMES)
    (tmp_path / "run" / "status.json").write_text("{}")
    images = normalise(pixels(), HALF)
    wanted = Teacher(model, student_preprocess=HALF)(images)
    for source in (tmp_path / "run", str(tmp_path / "run" / "model")):
        teacher = Teacher.load(source, student_preprocess=HALF, num_classes=4, labels=NAMES, device="cpu")
        assert torch.equal(teacher(images), wanted)


def test_classes_in_another_order_are_brought_into_the_students(tmp_path: Path) -> None:
    save_model(network(), tmp_path / "model", labels=["dog", "ant", "cat", "bee"])
    images = normalise(pixels(), HALF)

    def logits(labels: list[str] | None) -> torch.Tensor:
        source = tmp_path / "model"
        return Teacher.load(source, student_preprocess=HALF, num_classes=4, labels=labels)(images)

    assert torch.equal(logits(NAMES), logits(None)[:, [1, 3, 2, 0]])
    assert torch.equal(logits(["0", "1", "2", "3"]), logits(None))  # numbers say nothing


def test_a_teacher_matched_by_number_is_told(tmp_path: Path) -> None:
    save_model(network(), tmp_path / "model", labels=["0", "1", "2", "3"])
    teacher = Teacher.load(tmp_path / "model", student_preprocess=HALF, num_classes=4, labels=NAMES)
    assert teacher.remark is not None
    assert teacher.remark.startswith("warning: the teacher calls its classes '0', '1', ...")
    save_model(network(), tmp_path / "named", labels=NAMES[::-1])
    assert Teacher.load(tmp_path / "named", student_preprocess=HALF, num_classes=4, labels=NAMES).remark is None


def test_a_teacher_of_other_classes_is_refused(tmp_path: Path) -> None:
    save_model(network(), tmp_path / "model", labels=NAMES)
    with pytest.raises(ConfigError, match="4"):
        Teacher.load(tmp_path / "model", student_preprocess=HALF, num_classes=5)
    with pytest.raises(ConfigError, match="'owl'"):
        Teacher.load(tmp_path / "model", student_preprocess=HALF, num_classes=4, labels=["ant", "bee", "cat", "owl"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(VitscopeError, match="not a saved model"):
        Teacher.load(tmp_path / "empty", student_preprocess=HALF, num_classes=4)


def test_channels_that_are_no_pictures_are_refused(tmp_path: Path) -> None:
    torch.manual_seed(0)
    save_model(build_model(CNNConfig(img_size=16, in_chans=2, num_classes=4, widths=(4,))), tmp_path / "model")
    with pytest.raises(ConfigError, match="3 channels, received 2") as refused:
        Teacher.load(tmp_path / "model", student_preprocess=HALF, num_classes=4)
    assert "a teacher that reads 3" in str(refused.value.fix)
