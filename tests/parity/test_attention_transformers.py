"""Attention of every layer against transformers' own (`output_attentions`, eager), loaded from folders it saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from timm.models._hub import save_for_hf

from infer.looking_models import photograph
from parity.random_weights import fill_with_large_random_weights
from vitscope.infer.explain.explain import explain
from vitscope.infer.explain.subject import subject_of
from vitscope.infer.predictor import Predictor
from weights.huggingface_models import saved_by_transformers, their_model

CASES = ["vit", "vit_classes", "vit_options", "deit", "deit_classes", "deit_teacher", "dinov2", "dinov2_swiglu"]
CASES += ["dinov2_classes", "dinov2_registers", "dinov2_registers_classes"]
PICTURE = photograph(70, 50)


@pytest.mark.parametrize("case", CASES)
def test_every_layer_is_theirs(case: str, tmp_path: Path) -> None:
    theirs: Any = their_model(case)
    theirs.set_attn_implementation("eager")
    asked = Predictor.load(saved_by_transformers(theirs, tmp_path), device="cpu")
    images = subject_of(asked, PICTURE).images
    with torch.inference_mode():
        wanted = theirs(images, output_attentions=True).attentions
    found = asked.attention(PICTURE)
    assert len(found.layers) == len(wanted)
    for layer, weights in enumerate(wanted):
        assert weights.max() > 2 * weights.mean(), "even attention would compare nothing"
        assert (found.layers[layer] - weights[0]).abs().max() < 1e-5
    # The class token's row, or half of it and half of the distillation token's, is the map.
    prefix = len(found.prefix)
    row = wanted[-1][0].mean(0)[: 2 if found.prefix[1:2] == ("distillation",) else 1].mean(0)
    told = explain(asked, PICTURE, draws=None)
    np.testing.assert_allclose(told.map.ravel(), row[prefix:].numpy(), atol=1e-5)


def test_a_timm_folder_looks_as_timms_model(tmp_path: Path) -> None:
    theirs: Any = timm.create_model("vit_tiny_patch16_224", depth=2, num_classes=3, img_size=64).eval()
    fill_with_large_random_weights(theirs)
    save_for_hf(theirs, str(tmp_path), model_args={"depth": 2, "img_size": 64}, safe_serialization=True)
    asked = Predictor.load(tmp_path, device="cpu")
    kept: list[torch.Tensor] = []
    for block in theirs.blocks:
        block.attn.fused_attn = False
        block.attn.attn_drop.register_forward_hook(lambda _, __, weights: kept.append(weights))
    with torch.inference_mode():
        theirs(subject_of(asked, PICTURE).images)
    found = asked.attention(PICTURE)
    assert len(kept) == len(found.layers) == 2
    for layer, weights in enumerate(kept):
        assert (found.layers[layer] - weights[0]).abs().max() < 1e-5
