"""The class token's position, where only others have a row for it: the token takes it in, and cannot give it back."""

from __future__ import annotations

import torch
from torch import Tensor

from vitscope.weights.match import Match, turned


def token_with_its_row(ours: str, token: str, table: str) -> Match:
    """Our class token: theirs plus its row of their table."""
    return Match(
        ours,
        (token, table),
        lambda found, rows: found + rows[:, :1],
        how="plus its row of the position table",
        only_read=(table,),
    )


def rows_of_patches(ours: str, table: str) -> Match:
    """Our table: theirs without the class token's row, which is written as zeros."""
    return turned(ours, table, lambda rows: rows[:, 1:].clone(), _behind_zeros, how="without the class token's row")


def _behind_zeros(table: Tensor) -> Tensor:
    return torch.cat([torch.zeros_like(table[:, :1]), table], dim=1)
