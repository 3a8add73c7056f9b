"""Which pictures are most like one: the cosine of their features, kept while pictures pass by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from vitscope.core.errors import InputError, UsageError, expected


@dataclass(frozen=True)
class Neighbour:
    """A picture, and how like it is to the one asked about."""

    place: int
    """Its number among those looked through."""
    similarity: float
    """The cosine of the two: 1 for the same features."""


class Nearest:
    """Takes the features of many pictures, some at a time, and remembers the nearest `top_k`."""

    def __init__(self, query: Tensor, *, top_k: int = 5, without: Sequence[int] = ()) -> None:
        """`query` (D,) is what others are compared with; pictures numbered in `without` are passed over."""
        if top_k < 1:
            raise UsageError(expected("top_k", "a number from 1", top_k))
        if query.ndim != 1:
            raise InputError(
                expected("features", "one vector per picture", f"{tuple(query.shape)} of one"),
                fix="take tokens 'pooled', 'cls' or 'mean'",
            )
        self._query, self._top_k, self._without = F.normalize(query.float(), dim=0), top_k, frozenset(without)
        self._cosines = torch.zeros(0)
        self._places = torch.zeros(0, dtype=torch.int64)

    def take(self, places: Sequence[int], values: Tensor) -> None:
        """Features (B, D) of the pictures with these numbers."""
        kept = [row for row, place in enumerate(places) if place not in self._without]
        cosines = F.normalize(values[kept].float(), dim=1) @ self._query
        cosines = torch.cat([self._cosines, cosines])
        numbers = torch.cat([self._places, torch.tensor([places[row] for row in kept], dtype=torch.int64)])
        # Stable, so that of two that are equally near the first one given comes first.
        best = cosines.sort(descending=True, stable=True).indices[: self._top_k]
        self._cosines, self._places = cosines[best], numbers[best]

    @property
    def found(self) -> list[Neighbour]:
        """The nearest first."""
        return [Neighbour(*pair) for pair in zip(self._places.tolist(), self._cosines.tolist(), strict=True)]
