"""Where the units of a network lie in its tensors: rows of q, k and v and columns of proj, or of fc1 and fc2.

A tensor that holds the entries of c units along one axis is seen there as (parts, c, width): q, k and v are 3 parts, a
head is head_dim wide. Whatever is done with units (score, mask, cut) goes through this view, so a new kind of unit is a
new list of pieces.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from vitscope.core.errors import UsageError, expected
from vitscope.models.config import ViTConfig
from vitscope.models.vit import ViT
from vitscope.weights.folder import unwrapped

HEADS, NEURONS = "heads", "neurons"
KINDS = (HEADS, NEURONS)
"""Heads compete with heads and neurons with neurons."""


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
    """Whether the entries are the unit's to be scored, masked and drawn to 0. What is not (a head's relative positions)
    only goes with it when it is cut out."""

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
    count: int
    pieces: tuple[Piece, ...]
    """None where no unit is left."""
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


def groups_of(model: nn.Module) -> tuple[Group, ...]:
    """The groups of units of a network, block by block; of each block its heads, then its neurons."""
    config = vit_of(model).config
    groups: list[Group] = []
    for number, (heads, neurons) in enumerate(zip(config.block_heads, config.block_mlp_dims, strict=True)):
        groups += [_heads(config, number, heads), _neurons(config, number, neurons)]
    return tuple(groups)


def _heads(config: ViTConfig, block: int, count: int) -> Group:
    if count == 0:
        return Group(HEADS, block, 0, ())
    attn, wide = f"blocks.{block}.attn", config.dim_per_head
    pieces = [Piece(f"{attn}.qkv.weight", 0, count, 3, wide)]
    if config.qkv_bias:
        pieces.append(Piece(f"{attn}.qkv.bias", 0, count, 3, wide))
    pieces.append(Piece(f"{attn}.proj.weight", 1, count, 1, wide))
    if config.position == "relative":
        pieces.append(Piece(f"{attn}.relative.table", 1, count, is_own=False))
    norms = [f"{attn}.{name}" for name in ("q_norm", "k_norm") if config.qk_norm]
    norms += [f"blocks.{block}.norm1"] if config.norm_order == "pre" else []
    return Group(HEADS, block, count, tuple(pieces), _weights_and_biases(norms))


def _neurons(config: ViTConfig, block: int, count: int) -> Group:
    if count == 0:
        return Group(NEURONS, block, 0, ())
    mlp, parts = f"blocks.{block}.mlp", 2 if config.mlp == "swiglu" else 1
    pieces = (
        Piece(f"{mlp}.fc1.weight", 0, count, parts),
        Piece(f"{mlp}.fc1.bias", 0, count, parts),
        Piece(f"{mlp}.fc2.weight", 1, count),
    )
    norms = [f"blocks.{block}.norm2"] if config.norm_order == "pre" else []
    return Group(NEURONS, block, count, pieces, _weights_and_biases(norms))


def _weights_and_biases(layers: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{layer}.{leaf}" for layer in layers for leaf in ("weight", "bias"))


def vit_of(model: nn.Module) -> ViT:
    """The ViT itself, out of whatever is wrapped around it; other networks are refused."""
    inner = unwrapped(model)
    if not isinstance(inner, ViT):
        raise UsageError(
            expected(
                "model", "a ViT (ViT, DeiT, DINOv2 and their like), whose blocks have heads and neurons", _name(inner)
            ),
            where="vitscope.sparse",
            fix="take a vit_* or deit_* model; units of other families cannot be removed yet",
        )
    return inner


def _name(model: nn.Module) -> str:
    return f"a model of the family '{getattr(getattr(model, 'config', None), 'family', type(model).__name__)}'"
