"""Patch tokens far longer than the rest, which models without registers use as memory.

Darcet et al. 2024 (arXiv 2309.16588): such tokens hold something of the whole picture and little of their own place, so
what a map shows on them is not about what is there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from vitscope.models.config import ViTConfig

DEVIATIONS, TIMES = 6.0, 2.0
"""An outlier is this many robust deviations above the median, and this many times as long."""


@dataclass(frozen=True)
class TokenNorms:
    """How long the tokens are after the last block, before the last norm."""

    patches: np.ndarray
    """(h, w)"""
    prefix: tuple[float, ...]
    median: float
    """Of the patches."""
    limit: float
    """Above it a patch counts as an outlier."""

    @property
    def outliers(self) -> list[tuple[int, int]]:
        """(row, column), the longest first."""
        places = [(int(row), int(column)) for row, column in np.argwhere(self.patches > self.limit)]
        return sorted(places, key=lambda place: -self.patches[place])


def norms_of(tokens: Tensor, config: ViTConfig) -> TokenNorms:
    """From the tokens (T, D) of the last block."""
    lengths = tokens.detach().float().norm(dim=-1).cpu().numpy()
    patches = lengths[config.num_prefix_tokens :].reshape(config.grid_size)
    median = float(np.median(patches))
    deviation = 1.4826 * float(np.median(np.abs(patches - median)))  # as the standard deviation of normal numbers
    limit = max(median + DEVIATIONS * deviation, TIMES * median)
    return TokenNorms(patches, tuple(lengths[: config.num_prefix_tokens].tolist()), median, limit)
