"""Features from models loaded as timm and transformers saved them are those the two libraries compute themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import timm
import torch
import transformers
from timm.models._hub import save_for_hf
from torch import Tensor

from parity.random_weights import fill_with_large_random_weights
from vitscope.infer.predictor import Predictor

CLOSE = 1e-5


def images(size: int, count: int = 3) -> Tensor:
    return torch.randn(count, 3, size, size, generator=torch.Generator().manual_seed(2))


def assert_close(found: Tensor, wanted: Tensor) -> None:
    """To 1e-5 of the largest number: large random weights let features grow from layer to layer."""
    assert found.shape == wanted.shape
    assert (found - wanted).abs().max() <= CLOSE * max(1.0, float(wanted.abs().max()))


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("vit_tiny_patch16_224", {"depth": 3}),
        ("vit_small_patch14_reg4_dinov2", {"depth": 2, "img_size": 56}),
        ("deit_tiny_distilled_patch16_224", {"depth": 2}),
    ],
)
def test_tokens_are_timms(name: str, settings: dict[str, Any], tmp_path: Path) -> None:
    theirs: Any = timm.create_model(name, num_classes=5, **settings).eval()
    fill_with_large_random_weights(theirs)
    save_for_hf(theirs, str(tmp_path), model_args=settings, safe_serialization=True)
    predictor = Predictor.load(tmp_path, device="cpu")
    seen = images(predictor.preprocessing.img_size[0])
    for norm, side in ((True, "after"), (False, "before")):
        with torch.inference_mode():
            dense = theirs.forward_intermediates(
                seen, norm=norm, return_prefix_tokens=True, intermediates_only=True, output_fmt="NCHW"
            )
        maps = predictor.features(seen, layers=None, tokens="map", norm=norm)
        cls = predictor.features(seen, layers=None, tokens="cls", norm=norm)
        for layer, (grid, prefix) in enumerate(dense):
            assert_close(maps[f"layer{layer}_map_{side}_norm"], grid)
            assert_close(cls[f"layer{layer}_cls_{side}_norm"], prefix[:, 0])
    with torch.inference_mode():
        everything = theirs.forward_features(seen)
    assert_close(predictor.features(seen, tokens="all").only, everything)
    if "distilled" not in name:
        with torch.inference_mode():
            pooled = theirs.forward_head(everything, pre_logits=True)
        assert_close(predictor.features(seen).only, pooled)


@pytest.mark.parametrize("name", ["resnet18", "swin_tiny_patch4_window7_224"])
def test_maps_of_stages_are_timms(name: str, tmp_path: Path) -> None:
    theirs: Any = timm.create_model(name, num_classes=5).eval()
    fill_with_large_random_weights(theirs)
    save_for_hf(theirs, str(tmp_path), safe_serialization=True)
    predictor = Predictor.load(tmp_path, device="cpu")
    seen = images(224, 1)
    with torch.inference_mode():
        stages = theirs.forward_intermediates(seen, intermediates_only=True, output_fmt="NCHW")[-4:]
        last = theirs.forward_features(seen)
        pooled = theirs.forward_head(last, pre_logits=True)
    found = list(predictor.features(seen, layers=None, tokens="map", norm=False).values.values())
    for ours, wanted in zip(found, stages, strict=True):
        assert_close(ours, wanted)
    assert_close(predictor.features(seen, tokens="map").only, last if name == "resnet18" else last.permute(0, 3, 1, 2))
    assert_close(predictor.features(seen).only, pooled)


def test_hidden_states_are_transformers(tmp_path: Path) -> None:
    config = transformers.ViTConfig(
        image_size=64, patch_size=16, hidden_size=48, intermediate_size=96, num_hidden_layers=3, num_attention_heads=3
    )
    theirs = transformers.ViTForImageClassification(config).eval()
    fill_with_large_random_weights(theirs)
    theirs.save_pretrained(tmp_path)
    predictor = Predictor.load(tmp_path, device="cpu")
    seen = images(64)
    with torch.inference_mode():
        said: Any = theirs(pixel_values=seen, output_hidden_states=True)
        normed = theirs.vit(pixel_values=seen).last_hidden_state
    found = predictor.features(seen, layers=None, tokens="all", norm=False)
    assert len(said.hidden_states) == 4
    for layer in range(3):
        assert_close(found[f"layer{layer}_all_before_norm"], said.hidden_states[layer + 1])
    assert_close(predictor.features(seen, tokens="all").only, normed)
    assert_close(predictor.features(seen, tokens="cls").only, normed[:, 0])
    assert_close(predictor.features(seen).only, normed[:, 0])
