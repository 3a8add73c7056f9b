"""From any format to any other and back: bit for bit what it was, whatever lies between."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from parity.random_weights import fill_with_large_random_weights
from vitscope.models.build import build_model
from vitscope.models.variants import model_config
from vitscope.weights.convert import convert
from vitscope.weights.create import with_settings
from vitscope.weights.folder import save_model
from vitscope.weights.load import load_model
from vitscope.weights.proof import answer, fixed_batch

NARROW = {"embed_dim": 48, "depth": 2, "num_heads": 4}
SWIN = {"embed_dim": 24, "depths": (1, 1, 1, 1), "num_heads": (2, 2, 4, 4)}
DECODER = {"decoder_embed_dim": 32, "decoder_depth": 1, "decoder_num_heads": 2}
EVERYWHERE = ("vitscope", "timm", "huggingface")
TWINS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "vit_tiny_patch16_224": (NARROW, EVERYWHERE),
    "vit_small_patch16_384": (NARROW, EVERYWHERE),
    "vit_base_patch8_224": ({**NARROW, "img_size": 64}, EVERYWHERE),
    "vit_base_patch32_224": (NARROW, EVERYWHERE),
    "vit_base_patch32_384": ({**NARROW, "num_classes": 3, "in_chans": 1}, EVERYWHERE),
    "vit_large_patch14_224": (NARROW, EVERYWHERE),
    "vit_huge_patch14_224": (NARROW, EVERYWHERE),
    "deit_base_patch16_384": (NARROW, EVERYWHERE),
    "deit_small_distilled_patch16_224": (NARROW, EVERYWHERE),
    "vit_small_patch14_dinov2": ({**NARROW, "img_size": 98}, EVERYWHERE),
    "vit_base_patch14_reg4_dinov2": ({**NARROW, "img_size": 98}, EVERYWHERE),
    "vit_giant_patch14_dinov2": ({**NARROW, "img_size": 98, "mlp_dim": 128}, EVERYWHERE),
    "mae_vit_base_patch16": ({**NARROW, **DECODER}, ("vitscope", "huggingface")),
    "simmim_vit_base_patch16_224": (NARROW, ("vitscope", "huggingface")),
    "swin_tiny_patch4_window7_224": (SWIN, ("vitscope", "timm")),
    "resnet18": ({"depths": (1, 1, 1, 1)}, ("vitscope", "timm")),
}
WAYS = [(name, *way) for name, (_, formats) in TWINS.items() for way in permutations(formats, 2)]


@pytest.mark.parametrize(("name", "first", "other"), WAYS, ids=["-".join(way) for way in WAYS])
def test_there_and_back(name: str, first: Any, other: Any, tmp_path: Path) -> None:
    model = build_model(with_settings(model_config(name), TWINS[name][0])).eval()
    fill_with_large_random_weights(model)
    save_model(model, tmp_path / "ours")
    convert(tmp_path / "ours", tmp_path / "first", to=first, prove=False)
    convert(tmp_path / "first", tmp_path / "other", to=other, prove=False)
    convert(tmp_path / "other", tmp_path / "back", to=first, prove=False)

    before, after = (load_file(tmp_path / place / "model.safetensors") for place in ("first", "back"))
    assert before.keys() == after.keys()
    changed = [key for key, tensor in before.items() if not torch.equal(tensor, after[key])]
    assert changed == []
    images = fixed_batch(model.config, None)
    with torch.inference_mode():
        wanted = answer(model, images)
        for place in ("first", "other", "back"):
            found = answer(load_model(tmp_path / place), images)
            assert (found - wanted).abs().max() <= 1e-5 * wanted.abs().max(), place
