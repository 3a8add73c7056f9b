"""Attention inside windows, every other block shifted by half a window (Liu et al. 2021, arXiv 2103.14030).

B batch, h w grid, p q window, W windows of the grid, N = p*q tokens of a window, C width.
"""

from __future__ import annotations

from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitscope.models.layers.position import relative_index
from vitscope.models.layers.resample import resample_relative_table

Sides: TypeAlias = tuple[int, int]
"""Something (down, across), counted in tokens."""

FORBIDDEN = -100.0
"""Added to the scores of pairs that must not meet: e^-100 is nothing. Published weights know this number."""


def cut_windows(x: Tensor, window: Sides) -> Tensor:
    """(B, h, w, C) -> (B*W, N, C), the windows of an image in reading order."""
    b, h, w, c = x.shape
    p, q = window
    return x.reshape(b, h // p, p, w // q, q, c).transpose(2, 3).reshape(b * (h // p) * (w // q), p * q, c)


def join_windows(windows: Tensor, window: Sides, grid: Sides) -> Tensor:
    """The inverse of `cut_windows`: (B*W, N, C) -> (B, h, w, C)."""
    (p, q), (h, w), c = window, grid, windows.shape[-1]
    b = windows.shape[0] // ((h // p) * (w // q))
    return windows.reshape(b, h // p, w // q, p, q, c).transpose(2, 3).reshape(b, h, w, c)


def fit_window(grid: Sides, window_size: int, *, shifted: bool) -> tuple[Sides, Sides]:
    """Window and shift. A side that fits in one window is one window, and is not shifted."""
    down, across = (min(side, window_size) for side in grid)
    shift_down, shift_across = (window_size // 2 if shifted and side > window_size else 0 for side in grid)
    return (down, across), (shift_down, shift_across)


def shift_mask(grid: Sides, window: Sides, shift: Sides) -> Tensor:
    """(W, N, N), added to the scores of a shifted grid: 0, or FORBIDDEN between tokens from opposite edges.

    The shift rolls the first rows and columns round to the end, into one window with the old last ones.
    """
    wrapped_down, wrapped_across = (torch.arange(n) >= n - s for n, s in zip(grid, shift, strict=True))
    origin = 2 * wrapped_down.int()[:, None] + wrapped_across.int()[None, :]
    origin = cut_windows(origin[None, :, :, None], window)
    return (origin != origin.transpose(1, 2)).float() * FORBIDDEN


class WindowAttention(nn.Module):
    """Multi-head attention among the tokens of a window, with a learned bias for every offset between two."""

    relative_position_index: Tensor

    def __init__(
        self,
        dim: int,
        num_heads: int,
        window: Sides,
        *,
        qkv_bias: bool = True,
        attn_drop: float = 0.0,
        proj_drop: float = 0.0,
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.window = window
        self.attn_drop = attn_drop
        offsets = (2 * window[0] - 1) * (2 * window[1] - 1)
        self.relative_position_bias_table = nn.Parameter(torch.zeros(offsets, num_heads))
        self.register_buffer("relative_position_index", relative_index(window, 0), persistent=False)
        self.qkv = nn.Linear(dim, 3 * dim, bias=qkv_bias)
        self.proj = nn.Linear(dim, dim)
        self.proj_drop = nn.Dropout(proj_drop)

    def forward(self, windows: Tensor, mask: Tensor | None = None) -> Tensor:
        """(B*W, N, C) -> (B*W, N, C); `mask` (W, N, N) is added to the scores of every image's windows."""
        count, n, dim = windows.shape
        qkv = self.qkv(windows).reshape(count, n, 3, self.num_heads, dim // self.num_heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        bias = self.bias()
        if mask is not None:
            bias = (bias + mask[:, None]).repeat(count // mask.shape[0], 1, 1, 1)
        drop = self.attn_drop if self.training else 0.0
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=bias.to(q.dtype), dropout_p=drop)
        return self.proj_drop(self.proj(mixed.transpose(1, 2).flatten(2)))

    def bias(self) -> Tensor:
        """(1, heads, N, N)"""
        n = self.relative_position_index.shape[0]
        rows = self.relative_position_bias_table[self.relative_position_index.flatten()]
        return rows.view(1, n, n, self.num_heads).permute(0, 3, 1, 2)

    def resize(self, window: Sides) -> None:
        """Move the learned bias to another window; the index follows in `reset_buffers`."""
        table = self.relative_position_bias_table
        if window != self.window:
            moved = resample_relative_table(table.detach(), self.window, window)
            self.relative_position_bias_table = nn.Parameter(moved, requires_grad=table.requires_grad)
        self.window = window

    def reset_buffers(self, device: torch.device) -> None:
        self.relative_position_index = relative_index(self.window, 0).to(device)
