"""X1: every registered model to ONNX and torch.export, in batches of 1, 2 and 7: it says what torch says, and the
preprocessing and class names travel.

Models whose settings differ only in numbers trace to the same graph: of these the narrowest is tried at every run, the
others in `slow`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import Tensor

import vitscope
from contracts.twins import image_settings, pictures, twin
from vitscope.core.config import to_dict, updated
from vitscope.data.config import PreprocessConfig
from vitscope.models.build import build_model
from vitscope.models.config import MAEConfig, ModelConfig, SimMIMConfig, SwinConfig, ViTConfig, pair
from vitscope.models.resnet import Bottleneck, ResidualBlock
from vitscope.models.variants import list_models, model_config

FREE = {"init", "drop_rate", "attn_drop_rate", "drop_path_rate", "head_drop_rate", "mask_ratio"}
"""Settings that leave no trace in a network that is only used."""


def shape_of(settings: Any) -> Any:
    """The settings without their numbers: what decides which operators there are."""
    match settings:
        case dict():
            return tuple((key, shape_of(value)) for key, value in sorted(settings.items()) if key not in FREE)
        case list() | tuple():
            return len(settings)
        case bool() | str() | None:
            return settings
        case 0:
            return 0
    return "a number"


def least(config: ModelConfig) -> ModelConfig:
    """The twin with one block where a second has the same operators: tracing is most of the time."""
    small: Any = twin(config)
    match small:
        case SwinConfig():  # the second block of a stage is the one with a shift
            return updated(small, depths=(2, 1))
        case MAEConfig() | SimMIMConfig():  # only the encoder is exported
            return updated(small, encoder=updated(small.encoder, depth=1))
        case ViTConfig():
            return updated(small, depth=1)
    return small


def kinds() -> dict[Any, list[str]]:
    found: dict[Any, list[str]] = {}
    for name in list_models("*"):
        config = twin(model_config(name))
        found.setdefault((config.family, shape_of(to_dict(config))), []).append(name)
    return found


def width(name: str) -> int:
    return getattr(image_settings(model_config(name)), "embed_dim", 0)


FIRST = [min(names, key=width) for names in kinds().values()]
OTHERS = [name for name in list_models("*") if name not in FIRST]
ONE_PER_FAMILY = [
    "vit_base_patch16_224",
    "deit_tiny_distilled_patch16_224",
    "vit_small_patch14_reg4_dinov2",
    "swin_tiny_patch4_window7_224",
    "resnet50",
    "mnist_cnn",
    "mnist_lstm",
]


def built(config: ModelConfig) -> Any:
    """With large random weights: a residual branch that is born closed would hide what is wrong in it."""
    torch.manual_seed(0)
    model = build_model(config).eval()
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, ResidualBlock | Bottleneck):
                module.last_norm.weight.fill_(1.0)
        for name, weight in model.named_parameters():
            if name.endswith("bias") or weight.ndim > 1:
                weight.add_(0.05 * torch.randn_like(weight))
    return model


def said_by_torch(model: Any, images: Tensor) -> Tensor:
    with torch.inference_mode():
        return model.encoder(images) if hasattr(model, "encoder") else model(images)


def check(config: ModelConfig, folder: Path) -> None:
    model = built(config)
    inner = image_settings(config)
    chans, classes = inner.in_chans, inner.num_classes
    mean, std = tuple(0.4 + 0.01 * n for n in range(chans)), tuple(0.2 + 0.01 * n for n in range(chans))
    model.preprocessing = PreprocessConfig(img_size=pair(inner.img_size), in_chans=chans, mean=mean, std=std)
    if classes:
        model.labels = [f"Ä class {number}" for number in range(classes)]
    for file in (folder / "model.onnx", folder / "model.pt2"):
        report = vitscope.export_model(model, file)
        assert report.comparison.batches == (1, 2, 7)
        assert report.comparison.same_top1 == (report.comparison.pictures if classes else None)
    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    extra = dict.fromkeys(("vitscope.preprocessing", "vitscope.labels", "vitscope.file", "vitscope.model"), "")
    module = torch.export.load(folder / "model.pt2", extra_files=extra).module()
    for batch in (1, 2, 7):
        images = pictures(config, batch)
        wanted = said_by_torch(model, images)
        (found,) = session.run(None, {"images": images.numpy()})
        assert wanted.abs().max() > 0
        limit = 1e-4 * wanted.abs().max().item()
        assert np.abs(found - wanted.numpy()).max() <= limit
        assert (module(images) - wanted).abs().max() <= limit
        if classes:
            assert (found.argmax(-1) == wanted.argmax(-1).numpy()).all()
    for told in (session.get_modelmeta().custom_metadata_map, extra):
        assert json.loads(told["vitscope.preprocessing"]) == to_dict(model.preprocessing)
        assert json.loads(told["vitscope.labels"]) == model.labels
        assert json.loads(told["vitscope.file"])["output"] == ("logits" if classes else "features")
    assert sorted(path.name for path in folder.iterdir()) == ["model.onnx", "model.pt2"]
    onnx.checker.check_model(folder / "model.onnx", full_check=True)


def test_every_registered_model_is_among_them() -> None:
    assert sorted([*FIRST, *OTHERS]) == sorted(list_models("*"))
    assert {model_config(name).family for name in FIRST} == {model_config(name).family for name in list_models("*")}


@pytest.mark.parametrize("name", FIRST)
def test_the_twin_of_each_kind_of_model(name: str, tmp_path: Path) -> None:
    check(least(model_config(name)), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*FIRST, *OTHERS])
def test_the_whole_twin_of_every_model(name: str, tmp_path: Path) -> None:
    check(twin(model_config(name)), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", ONE_PER_FAMILY)
def test_one_of_each_family_at_full_size(name: str, tmp_path: Path) -> None:
    check(model_config(name), tmp_path)
