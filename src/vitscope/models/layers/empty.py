"""What is left of attention without heads and of an MLP without neurons: the bias they end with, for every token.

The same as the whole part with all its heads (neurons) at 0 says, at no cost. State-dict names are those of the whole
part; what nothing reads any more (q, k, v, fc1, matrices without a column) is not there. B batch, N tokens, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vitscope.core.errors import VitscopeError


class OnlyBias(nn.Module):
    """A linear layer to `dim` numbers from none."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(dim))

    def forward(self, x: Tensor) -> Tensor:
        """(B, N, D), whatever `x` of that shape says; numbers of its own, as no view of a parameter should go about."""
        return torch.zeros_like(x) + self.bias


class EmptyAttention(nn.Module):
    """`Attention` without heads."""

    num_heads = 0

    def __init__(self, dim: int, *, proj_drop: float = 0.0) -> None:
        super().__init__()
        self.proj = OnlyBias(dim)
        self.proj_drop = nn.Dropout(proj_drop)

    def forward(self, x: Tensor, rope: tuple[Tensor, Tensor] | None = None) -> Tensor:
        return self.proj_drop(self.proj(x))

    def weights(self, x: Tensor, rope: tuple[Tensor, Tensor] | None = None) -> Tensor:
        raise VitscopeError("attention without heads has no weights to show", fix="ask a block that has heads")


class EmptyMlp(nn.Module):
    """`Mlp` or `GatedMlp` without neurons."""

    def __init__(self, dim: int, *, drop: float = 0.0) -> None:
        super().__init__()
        self.fc2 = OnlyBias(dim)
        self.drop = nn.Dropout(drop)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(self.fc2(x))
