"""Multiply-adds of one image, by module. Counted on the meta device, where fused attention is seen for what it is."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from vitscope.models.modes import in_mode


def count_macs(model: nn.Module, image_shape: tuple[int, int, int]) -> dict[str, int]:
    """{module name: multiply-adds it does itself} for one image (C, H, W); `model` must be on the meta device.

    What a module does outside its children is its own: attention's q k^T and weights v stand under `...attn`.
    """
    images = torch.empty(1, *image_shape, device="meta")
    with in_mode(model, training=False), torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(images)
    root = type(model).__name__
    totals = {
        name.removeprefix(root).removeprefix("."): sum(counts.values()) // 2
        for name, counts in counter.get_flop_counts().items()
        if name != "Global"
    }
    return {name: total - _children(name, totals) for name, total in totals.items()}


def _children(name: str, totals: dict[str, int]) -> int:
    """Work of the nearest modules below `name` that did any."""
    prefix = f"{name}." if name else ""
    below = [other for other in totals if other and other != name and other.startswith(prefix)]
    nearest = [other for other in below if not any(other.startswith(f"{between}.") for between in below)]
    return sum(totals[other] for other in nearest)
