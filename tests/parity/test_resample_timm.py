"""Weights moved to other patches and channels are what timm makes of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from timm.layers.patch_embed import resample_patch_embed
from timm.models import create_model as timm_model
from timm.models._manipulate import adapt_input_conv
from timm.models.vision_transformer import checkpoint_filter_fn

from parity.random_weights import fill_with_large_random_weights
from vitscope.models.config import ViTConfig
from vitscope.models.layers.resample import resample_channels, resample_patch_filter
from vitscope.models.vit import ViT

SIZES = [((16, 16), (4, 4)), ((16, 16), (14, 14)), ((14, 14), (16, 16)), ((8, 8), (32, 32)), ((16, 8), (6, 20))]


@pytest.mark.parametrize(("old", "new"), SIZES)
def test_a_patch_filter_by_pseudo_inverse_is_timms(old: tuple[int, int], new: tuple[int, int]) -> None:
    weight = torch.randn(7, 3, *old, generator=torch.Generator().manual_seed(0))
    wanted = resample_patch_embed(weight, list(new))
    found = resample_patch_filter(weight, new, "pseudo_inverse")
    assert found.shape == wanted.shape
    assert (found - wanted).abs().max() <= 1e-5 * wanted.abs().max()


@pytest.mark.parametrize("in_chans", [1, 3, 6, 9])  # of others timm changes the answer to a grey picture
def test_channels_by_sum_are_timms(in_chans: int) -> None:
    weight = torch.randn(7, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    wanted = adapt_input_conv(in_chans, weight.clone())
    torch.testing.assert_close(resample_channels(weight, in_chans, "sum"), wanted, rtol=1e-6, atol=1e-6)


@torch.inference_mode()
def test_a_model_moved_to_other_patches_answers_as_timms() -> None:
    """Filter and positions together: timm moves them where it loads a file, ours where it is told to."""
    name = "vit_tiny_patch16_224"
    theirs: Any = timm_model(name, depth=2).eval()
    fill_with_large_random_weights(theirs)
    ours = ViT(ViTConfig(embed_dim=192, depth=2, num_heads=3)).eval()
    ours.load_state_dict(theirs.state_dict())
    small: Any = timm_model(name, depth=2, img_size=32, patch_size=4).eval()
    small.load_state_dict(checkpoint_filter_fn(theirs.state_dict(), small))
    ours.set_input_size(32, patch_size=4)
    images = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    wanted = small(images)
    assert (ours(images) - wanted).abs().max() <= 1e-4 * wanted.abs().max()
