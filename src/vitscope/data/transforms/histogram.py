"""Operations that look at the levels of a channel: autocontrast and equalise, each as a table from level to level.

A table has 256 entries where a picture has thousands of pixels, so the arithmetic is done on tables.
B pictures, C channels, N pixels, L = 256 levels.
"""

from __future__ import annotations

import torch
from torch import Tensor

LEVELS = 256


def look_up(pixels: Tensor, tables: Tensor) -> Tensor:
    """(B, C, N) uint8: each pixel of (B, C, N) replaced by what its channel's table (B, C, L) says."""
    return tables.gather(2, pixels.long())


def autocontrast_tables(pixels: Tensor) -> Tensor:
    """(B, C, L) uint8: the levels of each channel spread from 0 to 255; a channel of one level stays."""
    shades = pixels.to(torch.float32)  # of bytes, torch 2.15's compiler for CPUs takes 0 for the least
    lowest, highest = shades.amin(dim=2, keepdim=True), shades.amax(dim=2, keepdim=True)
    flat = lowest == highest
    step = torch.where(flat, 1.0, (highest - lowest) * (1 / 255))
    levels = torch.arange(LEVELS, device=pixels.device, dtype=torch.float32)
    return ((levels - torch.where(flat, 0.0, lowest)) / step).clamp(0, 255).to(torch.uint8)


def equalize_tables(pixels: Tensor) -> Tensor:
    """(B, C, L) uint8: levels become equally frequent, by Pillow's integer rule; a channel of one level stays.

    The brightest level in use does not count towards the step, as it has nowhere to go.
    """
    counts = _histograms(pixels)
    darker = counts.cumsum(dim=2, dtype=torch.int32) - counts
    brightest = counts.gather(2, pixels.amax(dim=2, keepdim=True).long())
    step = (pixels.shape[2] - brightest) // 255
    tables = ((darker + step // 2) // step.clamp(min=1)).clamp(0, 255).to(torch.uint8)
    unchanged = torch.arange(LEVELS, device=pixels.device, dtype=torch.uint8)
    return torch.where(step == 0, unchanged, tables)


def _histograms(pixels: Tensor) -> Tensor:
    """(B, C, L) int32. In one dimension: only there has torch a deterministic way on a GPU, where one is asked for."""
    channels = pixels.flatten(0, 1)
    first = torch.arange(len(channels), device=pixels.device)[:, None] * LEVELS
    counts = torch.zeros(len(channels) * LEVELS, dtype=torch.int32, device=pixels.device)
    places = (channels.long() + first).flatten()
    counts = counts.scatter_add(0, places, torch.ones_like(places, dtype=torch.int32))
    return counts.view(*pixels.shape[:2], LEVELS)
