"""Swin gives timm's numbers with timm's weights, loaded as they are, in both directions."""

from __future__ import annotations

import pytest
import timm
import torch
from random_weights import fill_with_large_random_weights
from timm.models.swin_transformer import SwinTransformer

from vitscope.core.config import to_dict
from vitscope.models.build import build_model
from vitscope.models.config import SwinConfig, pair
from vitscope.models.swin import Swin
from vitscope.models.variants import model_config

SMALL = SwinConfig(
    img_size=32,
    num_classes=10,
    embed_dim=24,
    depths=(2, 3, 2),
    num_heads=(2, 4, 8),
    window_size=4,
    drop_path_rate=0.0,
)


def timm_twin(config: SwinConfig) -> SwinTransformer:
    settings = to_dict(config)
    names = (
        "img_size",
        "patch_size",
        "in_chans",
        "num_classes",
        "embed_dim",
        "depths",
        "num_heads",
        "window_size",
    )
    more = ("mlp_ratio", "qkv_bias", "drop_path_rate")
    return SwinTransformer(**{name: settings[name] for name in (*names, *more)})


def images(size: int | tuple[int, int], batch: int = 2) -> torch.Tensor:
    return torch.randn(batch, 3, *pair(size), generator=torch.Generator().manual_seed(1))


def same_weights(config: SwinConfig, theirs: torch.nn.Module) -> Swin:
    fill_with_large_random_weights(theirs)
    ours = build_model(config)
    ours.load_state_dict(theirs.state_dict(), strict=True)
    theirs.load_state_dict(ours.state_dict(), strict=True)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    return ours


def test_swin_tiny_at_224():
    """Measured: 1.7e-6 on logits with a standard deviation of 1.6."""
    name = "swin_tiny_patch4_window7_224"
    theirs = timm.create_model(name).eval()
    ours = same_weights(model_config(name), theirs).eval()
    x = images(224, batch=1)
    with torch.no_grad():
        tokens, features = ours.forward_features(x), theirs.forward_features(x)
        assert tokens.shape == (1, 7, 7, 768)
        torch.testing.assert_close(tokens, features, atol=2e-5, rtol=0)
        torch.testing.assert_close(ours.forward_head(tokens), theirs.forward_head(features), atol=2e-5, rtol=0)


@pytest.mark.parametrize(
    "changes",
    [
        {"img_size": 64},
        {"img_size": (32, 64)},  # the last stages: one window down, several across
        {"img_size": (64, 16)},
        {"img_size": 16, "num_classes": 0},
        {"qkv_bias": False, "mlp_ratio": 2.5, "patch_size": 2},
        {"window_size": 2},
    ],
    ids=str,
)
def test_other_shapes(changes):
    config = SwinConfig(**{**to_dict(SMALL), **changes})
    theirs = timm_twin(config).eval()
    ours = same_weights(config, theirs).eval()
    x = images(config.img_size)
    with torch.no_grad():
        torch.testing.assert_close(ours(x), theirs(x), atol=2e-5, rtol=0)


def test_stages():
    theirs = timm_twin(SMALL).eval()
    ours = same_weights(SMALL, theirs).eval()
    x = images(32)
    with torch.no_grad():
        stages = theirs.forward_intermediates(x, intermediates_only=True)
        for i, tokens in ours.forward_intermediates(x).items():
            torch.testing.assert_close(tokens.permute(0, 3, 1, 2), stages[i], atol=2e-5, rtol=0)


def test_another_input_size():
    """Grids and masks follow the image; windows that stay keep their table. (Where a window changes, timm
    moves its table on a geometric grid, ours is plain bicubic.)"""
    theirs = timm_twin(SwinConfig(**{**to_dict(SMALL), "img_size": 64})).eval()
    ours = same_weights(SwinConfig(**{**to_dict(SMALL), "img_size": 64}), theirs).eval()
    theirs.set_input_size((128, 64), window_size=(4, 4))
    ours.set_input_size((128, 64))
    x = images((128, 64))
    with torch.no_grad():
        torch.testing.assert_close(ours(x), theirs(x), atol=2e-5, rtol=0)


def test_gradients_in_train_mode():
    theirs = timm_twin(SMALL).train()
    ours = same_weights(SMALL, theirs).train()
    x, labels = images(32, batch=4), torch.arange(4)
    for model in (theirs, ours):
        torch.nn.functional.cross_entropy(model(x), labels).backward()
    for (name, mine), other in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        assert (mine.grad - other.grad).abs().max() <= 2e-5 * max(1.0, other.grad.abs().max().item()), name
