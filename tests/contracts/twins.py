"""A small twin of every registered model: the same family and options, two blocks deep, on the smallest legal image."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from vitscope.core.config import updated
from vitscope.models.config import (
    CNNConfig,
    LSTMConfig,
    MAEConfig,
    ModelConfig,
    ResNetConfig,
    SimMIMConfig,
    SwinConfig,
    ViTConfig,
    pair,
)

WIDEST = 192
"""Wider twins are halved until they fit (heads too, so numbers per head stay): weights would only take time to draw."""


def twin(config: ModelConfig, num_classes: int | None = 10) -> ModelConfig:
    """The settings of the twin; `None` keeps the number of classes."""
    small = _shrunk(config)
    if num_classes is None or isinstance(small, MAEConfig | SimMIMConfig):
        return small
    return updated(small, num_classes=num_classes)


def _shrunk(config: ModelConfig) -> ModelConfig:
    match config:
        case ViTConfig():
            return _small_vit(config)
        case SwinConfig():
            # One block without and one with a shift; 8 x 8 tokens in 4 x 4 windows, then 4 x 4 in one.
            side = 8 * pair(config.patch_size)[0]
            return updated(config, img_size=side, depths=(2, 2), num_heads=config.num_heads[:2], window_size=4)
        case ResNetConfig():
            return updated(config, img_size=32, depths=(1,) * len(config.depths))
        case CNNConfig():
            return updated(config, img_size=2 ** len(config.widths))
        case LSTMConfig():
            return updated(config, img_size=8)
        case MAEConfig():
            return updated(config, encoder=_small_vit(config.encoder), decoder_depth=2)
        case SimMIMConfig():
            return updated(config, encoder=_small_vit(config.encoder))


def _small_vit(config: ViTConfig) -> ViTConfig:
    """Two blocks, 2 x 2 patches."""
    down, across = pair(config.patch_size)
    changes: dict[str, Any] = {"depth": 2, "img_size": (2 * down, 2 * across)}
    parts = 1
    while config.embed_dim // parts > WIDEST and config.block_heads[0] % (2 * parts) == 0:
        parts *= 2
    if parts > 1:
        changes |= {"embed_dim": config.embed_dim // parts, "num_heads": config.block_heads[0] // parts}
        if isinstance(config.mlp_dim, int):
            changes["mlp_dim"] = config.mlp_dim // parts
    return updated(config, **changes)


def image_settings(config: ModelConfig) -> Any:
    """Where img_size, in_chans and (for classifiers) num_classes stand."""
    return config.encoder if isinstance(config, MAEConfig | SimMIMConfig) else config


def image_shape(config: ModelConfig) -> tuple[int, int, int]:
    settings = image_settings(config)
    return settings.in_chans, *pair(settings.img_size)


def pictures(config: ModelConfig, batch: int = 4, seed: int = 1) -> Tensor:
    return torch.randn(batch, *image_shape(config), generator=torch.Generator().manual_seed(seed))
