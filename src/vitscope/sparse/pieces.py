"""What a unit is made of: its entries in each tensor that has some.

A tensor that holds the entries of c units along one axis is seen there as (parts, c, width): q, k and v are 3 parts, a
head is head_dim wide. Whatever is done with units (score, mask, cut) goes through this view, so a new kind of unit is a
new list of pieces (`families/`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

HEADS, NEURONS, CHANNELS = "heads", "neurons", "channels"
KINDS = (HEADS, NEURONS, CHANNELS)
"""Heads compete with heads, neurons with neurons, channels with channels."""


@dataclass(frozen=True)
class Piece:
    """The part of a group of units that lies in one tensor."""

    name: str
    """Of the tensor, as in the state dict."""
    axis: int
    """0: a unit's entries are rows, 1: columns."""
    count: int
    """Units."""
    parts: int = 1
    width: int = 1
    is_own: bool = True
    """Whether the entries are the unit's to be scored, masked and drawn to 0. What is not (a head's relative positions,
    a channel's running mean) only goes with it when it is cut out."""

    def by_unit(self, tensor: Tensor) -> Tensor:
        """A view (count, entries of each unit)."""
        axes = tensor.unflatten(self.axis, (self.parts, self.count, self.width))
        return axes.movedim(self.axis + 1, 0).flatten(1)

    def places(self, kept: Tensor) -> Tensor:
        """Which rows (columns) belong to the units that `kept` (count,) says yes to."""
        size = self.parts * self.count * self.width
        return torch.arange(size, device=kept.device).view(self.parts, self.count, self.width)[:, kept].flatten()

    def cut(self, tensor: Tensor, kept: Tensor) -> Tensor:
        """A copy without the other units' rows (columns)."""
        return tensor.index_select(self.axis, self.places(kept).to(tensor.device))

    def spread(self, kept: Tensor, shape: torch.Size) -> Tensor:
        """`kept` (count,) at each entry of the tensor."""
        along = kept.view(1, -1, 1).expand(self.parts, -1, self.width).flatten()
        return along.view([-1 if axis == self.axis else 1 for axis in range(len(shape))]).expand(shape)


@dataclass(frozen=True)
class Group:
    """The units of one kind in one block, which compete with each other."""

    kind: str
    block: int
    """Its number among the groups of this kind."""
    count: int
    pieces: tuple[Piece, ...]
    """None where no unit is left."""
    reader: str = ""
    """The layer that reads what the units say."""
    beside: tuple[str, ...] = ()
    """Tensors that serve all units together (norms before and between them), and that nothing reads without any."""

    @property
    def own(self) -> tuple[Piece, ...]:
        return tuple(piece for piece in self.pieces if piece.is_own)

    def sums(self, values: Mapping[str, Tensor]) -> Tensor:
        """(count,): of each unit the sum over its own entries, where `values` has the tensor."""
        found = [piece.by_unit(values[piece.name]).sum(1) for piece in self.own if piece.name in values]
        if self.count == 0:
            return torch.zeros(0)
        if not found:
            raise KeyError(f"nothing is given of {', '.join(piece.name for piece in self.own)}")
        return torch.stack(found).sum(0)
