"""How tokens know their place: fixed 2-D sin-cos, rotary 2-D, and relative bias. (A learned table is one parameter.)

Grids are (down, across); tokens run in reading order. N patches, P prefix tokens, D width, d numbers per head.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


def sincos_2d(grid_size: tuple[int, int], dim: int, *, temperature: float = 10_000.0) -> Tensor:
    """Fixed table (N, D) as in MAE (arXiv 2111.06377): the first half of D encodes across, the second half down,
    each as all sines, then all cosines, of the place times temperature**(-k / (D/4))."""
    down, across = grid_size
    y, x = torch.meshgrid(torch.arange(down), torch.arange(across), indexing="ij")
    frequency = temperature ** -(torch.arange(dim // 4, dtype=torch.float64) / (dim // 4))
    halves = []
    for place in (x, y):
        angle = place.reshape(-1, 1).double() * frequency
        halves += [angle.sin(), angle.cos()]
    return torch.cat(halves, dim=1).float()


def rope_2d(
    grid_size: tuple[int, int], head_dim: int, num_prefix: int, *, temperature: float = 100.0
) -> tuple[Tensor, Tensor]:
    """cos and sin, each (P + N, d), for rotary positions in two axes (RoFormer, arXiv 2104.09864; arXiv 2403.13298).

    Neighbouring numbers form pairs that turn together. The first half of the pairs turns with the row, the second
    with the column, at angle place * temperature**(-k / (d/4)). Prefix tokens have no place and do not turn.
    """
    down, across = grid_size
    y, x = torch.meshgrid(torch.arange(down), torch.arange(across), indexing="ij")
    frequency = temperature ** -(torch.arange(head_dim // 4, dtype=torch.float64) / (head_dim // 4))
    angle = torch.cat([place.reshape(-1, 1).double() * frequency for place in (y, x)], dim=1)
    angle = torch.cat([angle.new_zeros(num_prefix, angle.shape[1]), angle]).repeat_interleave(2, dim=1)
    return angle.cos().float(), angle.sin().float()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn each pair (a, b) of the last axis by its angle: (a cos - b sin, b cos + a sin)."""
    turned = torch.stack((-x[..., 1::2], x[..., 0::2]), dim=-1).flatten(-2)
    return x * cos.to(x.dtype) + turned * sin.to(x.dtype)


class RelativeBias(nn.Module):
    """A learned bias per head for every offset between two patches, added to the attention scores.

    As in BEiT (arXiv 2106.08254), three more rows serve prefix-to-patch, patch-to-prefix and prefix-to-prefix.
    """

    index: Tensor

    def __init__(self, grid_size: tuple[int, int], num_heads: int, num_prefix: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(_offsets(grid_size) + 3, num_heads))
        self.register_buffer("index", relative_index(grid_size, num_prefix), persistent=False)

    def forward(self) -> Tensor:
        """(1, heads, tokens, tokens)"""
        tokens = self.index.shape[0]
        return self.table[self.index.flatten()].view(1, tokens, tokens, -1).permute(0, 3, 1, 2)


def relative_index(grid_size: tuple[int, int], num_prefix: int) -> Tensor:
    """(P + N, P + N): which row of the table serves each pair of tokens."""
    down, across = grid_size
    y, x = torch.meshgrid(torch.arange(down), torch.arange(across), indexing="ij")
    y, x = y.flatten(), x.flatten()
    dy = y[:, None] - y[None, :] + down - 1
    dx = x[:, None] - x[None, :] + across - 1
    patches = dy * (2 * across - 1) + dx
    offsets = _offsets(grid_size)
    tokens = num_prefix + down * across
    index = torch.empty(tokens, tokens, dtype=torch.long)
    index[num_prefix:, num_prefix:] = patches
    index[:num_prefix, num_prefix:] = offsets
    index[num_prefix:, :num_prefix] = offsets + 1
    index[:num_prefix, :num_prefix] = offsets + 2
    return index


def _offsets(grid_size: tuple[int, int]) -> int:
    return (2 * grid_size[0] - 1) * (2 * grid_size[1] - 1)
