"""Moving learned tables to another grid, so that weights made for one image size serve another."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def resample_positions(
    table: Tensor,
    old_grid: tuple[int, int],
    new_grid: tuple[int, int],
    *,
    num_prefix: int = 0,
    antialias: bool = True,
) -> Tensor:
    """(1, P + N, D) -> (1, P + M, D): bicubic over the grid; rows of prefix tokens stay as they are.

    `antialias` widens the filter when the grid shrinks (timm's convention); without it, plain bicubic (DeiT's, MAE's).
    """
    if old_grid == new_grid:
        return table
    prefix, patches = table[:, :num_prefix], table[:, num_prefix:]
    image = patches.float().reshape(1, *old_grid, -1).permute(0, 3, 1, 2)
    image = F.interpolate(image, size=new_grid, mode="bicubic", antialias=antialias)
    patches = image.permute(0, 2, 3, 1).flatten(1, 2).to(table.dtype)
    return torch.cat([prefix, patches], dim=1)


def resample_relative_table(table: Tensor, old_grid: tuple[int, int], new_grid: tuple[int, int]) -> Tensor:
    """(offsets + extra, heads): bicubic over the offsets of two patches; extra rows stay as they are."""
    if old_grid == new_grid:
        return table
    old, new = (2 * old_grid[0] - 1, 2 * old_grid[1] - 1), (2 * new_grid[0] - 1, 2 * new_grid[1] - 1)
    offsets, extra = table[: old[0] * old[1]], table[old[0] * old[1] :]
    image = offsets.float().reshape(1, *old, -1).permute(0, 3, 1, 2)
    image = F.interpolate(image, size=new, mode="bicubic", antialias=False)
    return torch.cat([image.permute(0, 2, 3, 1).reshape(new[0] * new[1], -1).to(table.dtype), extra])
