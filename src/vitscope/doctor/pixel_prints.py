"""A number for the pixels of each picture, so that copies are found by comparing numbers.

N pictures, W words of 32 bits in each.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional as F

SPREAD = -7046029254386353131
"""Odd: every bit of a word reaches the higher half of its product, and from there the lower one."""
WORDS = 1 << 24
"""At a time: 128 MB."""


def pixel_prints(pixels: Tensor) -> Tensor:
    """(N,) int64, computed where the pixels are: equal pixels, equal numbers, on whatever device. Others are equal by a
    chance of about 2^-64: the sum of words, each times its own number drawn by lot."""
    if pixels.numel() == 0:
        return torch.zeros(len(pixels), dtype=torch.int64, device=pixels.device)
    content = pixels.contiguous().view(len(pixels), -1).view(torch.uint8)
    content = F.pad(content, (0, -content.shape[1] % 4))
    words = content.view(torch.int32)
    weights = _weights(words.shape[1], str(pixels.device))
    return torch.cat([_sums(some, weights) for some in words.split(max(1, WORDS // words.shape[1]))])


def _sums(words: Tensor, weights: Tensor) -> Tensor:
    spread = words.to(torch.int64).mul_(SPREAD)
    spread ^= spread >> 32
    return spread.mul_(weights).sum(1)


@lru_cache(maxsize=8)
def _weights(count: int, device: str) -> Tensor:
    drawn = torch.randint(-(2**62), 2**62, (count,), generator=torch.Generator().manual_seed(0), dtype=torch.int64)
    return (2 * drawn + 1).to(device)
