"""LayerScale: a learned factor per channel on each branch (Touvron et al. 2021, arXiv 2103.17239)."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class LayerScale(nn.Module):
    def __init__(self, dim: int, initial: float) -> None:
        super().__init__()
        self.initial = initial
        self.gamma = nn.Parameter(torch.full((dim,), initial))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gamma
