"""Pictures and keys for the tests of the batched transforms, and the two tests of distributions.

B pictures, C channels, H height, W width.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable

import numpy as np
import torch
from scipy import stats
from torch import Tensor
from torch.nn import functional as F

from vitscope.data.draws import picture_keys


def pictures(count: int, channels: int = 3, size: tuple[int, int] = (32, 32), seed: int = 0) -> Tensor:
    """(B, C, H, W) uint8: smooth with noise, like photographs; the last four black, white, of one colour, of two."""
    rng = torch.Generator().manual_seed(seed)
    coarse = torch.rand(count, channels, 5, 4, generator=rng)
    smooth = F.interpolate(coarse, size=size, mode="bicubic", align_corners=False) * 300 - 20
    noise = torch.randn(count, channels, *size, generator=rng) * torch.rand(count, 1, 1, 1, generator=rng) * 40
    made = (smooth + noise).clamp(0, 255).to(torch.uint8)
    extremes = torch.zeros(4, channels, *size, dtype=torch.uint8)
    extremes[1] = 255
    extremes[2] = torch.tensor([200, 30, 90], dtype=torch.uint8)[:channels, None, None]
    extremes[3, :, size[0] // 2 :] = 180
    made[-4:] = extremes[:count]
    return made


def keys(count: int, key: int = 12345) -> Tensor:
    return picture_keys(key, torch.arange(count))


def same_distribution(ours: Tensor, theirs: Tensor) -> float:
    """The p-value that two samples of numbers come from one distribution (Kolmogorov and Smirnov)."""
    return float(stats.ks_2samp(ours.double().numpy(), theirs.double().numpy(), method="asymp").pvalue)


def same_frequencies(ours: Iterable[Hashable], theirs: Iterable[Hashable]) -> float:
    """The p-value that two samples of kinds come from one distribution (chi-square); rare kinds count as one."""
    mine, yours = Counter(ours), Counter(theirs)
    table = np.array([(mine[kind], yours[kind]) for kind in sorted(mine.keys() | yours.keys(), key=str)])
    common = table.sum(axis=1) >= 10
    rare = table[~common].sum(axis=0, keepdims=True)
    table = np.concatenate([table[common], rare]) if rare.sum() >= 10 else table[common]
    return float(stats.chi2_contingency(table).pvalue) if len(table) > 1 else float(len(mine) == len(yours) == 1)
