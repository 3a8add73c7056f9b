"""Tensors of the wrong number of axes, empty ones, scalars: in every format the ordinary refusal, which lists them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from itertools import cycle, product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from vitscope.core.errors import VitscopeError
from vitscope.models.build import build_model
from vitscope.models.config import (
    CNNConfig,
    LSTMConfig,
    MAEConfig,
    ModelConfig,
    ResNetConfig,
    SimMIMConfig,
    SwinConfig,
    ViTConfig,
)
from vitscope.weights import fitting, layers_for, read
from vitscope.weights.files import Stored
from vitscope.weights.formats import DINOV2, GOOGLE, HUGGINGFACE, MAE_ORIGINAL, OWN, TIMM
from vitscope.weights.load import load_model
from vitscope.weights.match import Format

Tensors = dict[str, Tensor]


def vit(**changes: Any) -> ViTConfig:
    settings = {"img_size": 16, "patch_size": 8, "embed_dim": 16, "depth": 1, "num_heads": 2, "num_classes": 3}
    return ViTConfig(**{**settings, **changes})


def mae() -> MAEConfig:
    encoder = vit(position="sincos", num_classes=0)
    return MAEConfig(encoder=encoder, decoder_embed_dim=16, decoder_depth=1, decoder_num_heads=2)


def swin() -> SwinConfig:
    return SwinConfig(img_size=32, embed_dim=8, depths=(1, 1), num_heads=(1, 2), window_size=4, num_classes=3)


FORMATS: dict[str, tuple[Format, ModelConfig, tuple[str, ...]]] = {
    "timm": (TIMM, vit(), ()),
    "timm, distilled": (TIMM, vit(distilled=True), ()),
    "timm, swin": (TIMM, swin(), ()),
    "the first swin": (TIMM, swin(), ("layers.0.downsample.reduction.weight",)),
    "timm, resnet": (TIMM, ResNetConfig(img_size=32, depths=(1, 1), stem_width=4, num_classes=3), ()),
    "our masked model": (OWN, SimMIMConfig(encoder=vit(num_classes=0)), ()),
    "our cnn": (OWN, CNNConfig(widths=(4, 4)), ()),
    "our lstm": (OWN, LSTMConfig(embed_dim=8, depth=1), ()),
    "huggingface": (HUGGINGFACE, vit(), ("vit.embeddings.patch_embeddings.projection.weight",)),
    "huggingface, mae": (HUGGINGFACE, mae(), ("vit.embeddings.patch_embeddings.projection.weight",)),
    "huggingface, dinov2": (
        HUGGINGFACE,
        vit(layer_scale=1e-5, num_registers=2, prefix_position=False),
        ("embeddings.patch_embeddings.projection.weight",),
    ),
    "dinov2": (DINOV2, vit(layer_scale=1e-5, num_registers=2, prefix_position=False), ()),
    "mae": (MAE_ORIGINAL, mae(), ()),
    "google": (GOOGLE, vit(), ("embedding/kernel",)),
    "big_vision": (
        GOOGLE,
        vit(pool="attention", class_token=False),
        ("params/embedding/kernel", "params/pos_embedding"),
    ),
}
CHANGES: dict[str, Callable[[Tensor], Tensor]] = {
    "an axis less": lambda tensor: tensor[0] if tensor.ndim else tensor[None],
    "an axis more": lambda tensor: tensor[None],
    "three axes more": lambda tensor: tensor[None, None, None],
    "flat": lambda tensor: tensor.reshape(-1),
    "a scalar": lambda tensor: tensor.reshape(-1)[0],
    "empty": lambda tensor: tensor.new_empty(0),
    "an empty first axis": lambda tensor: tensor.reshape(1)[:0] if not tensor.ndim else tensor[:0],
    "an empty last axis": lambda tensor: tensor.reshape(1)[:0] if not tensor.ndim else tensor[..., :0],
    "one too many": lambda tensor: torch.cat([tensor, tensor[:1]]) if tensor.ndim else tensor.repeat(2),
}


built_once = functools.cache(build_model)
"""For one file after the other it is the same registered models that are tried: hollow ones, which nobody fills."""


@pytest.fixture(autouse=True)
def registered_models_are_built_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every refusal asks which of them the file may be for. To build them is nearly all of what that costs."""

    def ask(stored: Stored) -> list[str]:
        with pytest.MonkeyPatch.context() as patched:
            for place in (read, fitting):
                patched.setattr(place, "build_model", built_once)
            return fitting.fitting_models(stored)

    monkeypatch.setattr(layers_for, "fitting_models", ask)


def written(by: Format, config: ModelConfig, known: tuple[str, ...]) -> Tensors:
    """A model in another's names, as its matches write it."""
    like = Stored(dict.fromkeys(known, (1,)), lambda name: pytest.fail("a number was read"), files=(Path("none"),))
    find, tensors = by.reading(like, config), dict[str, Tensor]()
    for name, tensor in build_model(config).state_dict().items():
        match = find(name)
        assert match is not None, name
        tensors |= zip(match.written, match.write(tensor), strict=True) if match.written else ()
    return tensors


@pytest.mark.parametrize("name", FORMATS)
def test_a_misshapen_tensor_is_listed(name: str, tmp_path: Path) -> None:
    """Every tensor with one of the changes, every change with some of the tensors."""
    by, config, known = FORMATS[name]
    good, path = written(by, config, known), tmp_path / "a.pth"
    torch.save(good, path)
    load_model(path, config=config, say=False)
    changes = cycle(CHANGES)
    assert_listed([(key, next(changes)) for key in good], good, config, path)


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_every_misshapen_tensor_is_listed(name: str, tmp_path: Path) -> None:
    by, config, known = FORMATS[name]
    good = written(by, config, known)
    assert_listed(list(product(good, CHANGES)), good, config, tmp_path / "a.pth")


def assert_listed(cases: list[tuple[str, str]], good: Tensors, config: ModelConfig, path: Path) -> None:
    wrong = []
    for key, change in cases:
        bad = CHANGES[change](good[key]).clone()
        torch.save({**good, key: bad}, path)
        try:
            model = load_model(path, config=config, say=False)
        except VitscopeError as error:
            if key not in str(error) and not listed(str(error)):
                wrong.append(f"{key} {tuple(bad.shape)}: {error}")
            assert len(str(error)) < 2000
        else:  # some shapes say the same, or of another picture, or of other classes
            assert model.certificate.is_whole
    assert not wrong


def listed(text: str) -> bool:
    return "the weights do not fit the config; " in text and (" that do not fit: " in text or " unexpected: " in text)
