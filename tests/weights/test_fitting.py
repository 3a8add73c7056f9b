"""Which models a bare file is for: names and shapes tell, and what is named loads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from vitscope.core.config import updated
from vitscope.core.errors import VitscopeError
from vitscope.models.build import build_model
from vitscope.models.variants import model_config
from vitscope.weights.files import Stored
from vitscope.weights.fitting import fitting_models
from vitscope.weights.formats.huggingface import naming
from vitscope.weights.load import load_model


def hollow(shapes: dict[str, Any]) -> Stored:
    return Stored(
        shapes,
        lambda name: torch.zeros(shapes[name], dtype=torch.long if "num_batches" in name else torch.float),
        files=(Path("a file"),),
    )


def shapes_of(name: str, **changes: Any) -> dict[str, Any]:
    with torch.device("meta"):
        model = build_model(updated(model_config(name), **changes))
    return {key: tuple(tensor.shape) for key, tensor in model.state_dict().items()}


@pytest.mark.parametrize(
    ("name", "others"),
    [
        ("vit_small_patch16_224", {"deit_small_patch16_224", "vit_small_imagenet"}),
        ("vit_small_patch16_384", set()),
        ("deit_small_distilled_patch16_224", set()),
        ("vit_small_patch14_dinov2", set()),
        ("vit_small_patch14_reg4_dinov2", set()),
        ("swin_tiny_patch4_window7_224", set()),
        ("swin_small_patch4_window7_224", set()),
        ("resnet18", set()),
        ("resnet50", set()),
    ],
)
def test_only_models_that_fit_are_named(name: str, others: set[str]) -> None:
    fitting = fitting_models(hollow(shapes_of(name)))
    assert name in fitting
    assert set(fitting) - {name} <= others


def test_an_unknown_picture_size_names_the_models_of_other_sizes() -> None:
    fitting = fitting_models(hollow(shapes_of("vit_small_patch16_224", img_size=256, num_classes=7)))
    assert {"vit_small_patch16_224", "vit_small_patch16_384"} <= set(fitting)


def saved(tmp_path: Path, name: str) -> Path:
    torch.save(build_model(model_config(name)).state_dict(), tmp_path / "weights.pth")
    return tmp_path / "weights.pth"


def test_a_wrong_name_gets_those_that_fit(tmp_path: Path) -> None:
    with pytest.raises(VitscopeError, match="the weights do not fit the config") as caught:
        load_model(saved(tmp_path, "vit_tiny_patch16_224"), config="vit_small_patch16_224")
    fits = "name another model: by their shapes these fit: deit_tiny_patch16_224, vit_tiny_patch16_224"
    assert fits in str(caught.value.fix)


def test_registers_are_named(tmp_path: Path) -> None:
    with pytest.raises(VitscopeError, match="the weights have 4 register tokens, the config 0") as caught:
        load_model(saved(tmp_path, "vit_small_patch14_reg4_dinov2"), config="vit_small_patch14_dinov2")
    assert str(caught.value.fix).endswith("by their shapes these fit: vit_small_patch14_reg4_dinov2")


def test_another_mlp_fits_nothing() -> None:
    assert fitting_models(hollow(shapes_of("vit_small_patch16_224", mlp_ratio=3.0))) == []


def test_names_of_google_and_of_hugging_face() -> None:
    ours = shapes_of("vit_small_patch16_224")
    find = naming(model_config("vit_small_patch16_224"), "vit.")
    theirs: dict[str, Any] = {}
    for name, shape in ours.items():
        match: Any = find(name)
        theirs |= {
            part: tuple(tensor.shape)
            for part, tensor in zip(match.written, match.write(torch.empty(shape, device="meta")), strict=True)
        }
    assert "vit_small_patch16_224" in fitting_models(hollow(theirs))
    google: dict[str, Any] = {
        "embedding/kernel": (16, 16, 3, 384),
        "embedding/bias": (384,),
        "cls": (1, 1, 384),
        "Transformer/posembed_input/pos_embedding": (1, 197, 384),
        "Transformer/encoder_norm/scale": (384,),
        "Transformer/encoder_norm/bias": (384,),
        "head/kernel": (384, 1000),
        "head/bias": (1000,),
    }
    for number in range(12):
        block = f"Transformer/encoderblock_{number}/"
        for norm in ("LayerNorm_0", "LayerNorm_2"):
            google |= {f"{block}{norm}/scale": (384,), f"{block}{norm}/bias": (384,)}
        attention = f"{block}MultiHeadDotProductAttention_1/"
        for part in ("query", "key", "value"):
            google |= {f"{attention}{part}/kernel": (384, 6, 64), f"{attention}{part}/bias": (6, 64)}
        google |= {f"{attention}out/kernel": (6, 64, 384), f"{attention}out/bias": (384,)}
        google |= {f"{block}MlpBlock_3/Dense_0/kernel": (384, 1536), f"{block}MlpBlock_3/Dense_0/bias": (1536,)}
        google |= {f"{block}MlpBlock_3/Dense_1/kernel": (1536, 384), f"{block}MlpBlock_3/Dense_1/bias": (384,)}
    fitting = fitting_models(hollow(google))
    assert "vit_small_patch16_224" in fitting
    assert not any("distilled" in name or "patch32" in name or "base" in name for name in fitting)
