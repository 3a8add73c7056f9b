"""Masks over weights: True stays, False is held at exactly 0. Unstructured ones by magnitude, others by units."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import torch
from torch import Tensor, nn

from vitscope.core.errors import InputError, expected
from vitscope.sparse.layout import family_of, groups_of, network_of
from vitscope.sparse.units import Units, as_written

Masks = dict[str, Tensor]
"""Of each masked tensor, by its name in the state dict, a bool tensor of its shape."""


def prunable(model: nn.Module, *, patch_embed: bool = False) -> list[str]:
    """Names of the weights that unstructured pruning may take from: of a ViT's blocks (`patch_embed` only on request),
    of all convolutions. Norms, tokens, the position table and the head are never pruned."""
    network = network_of(model)
    return family_of(network).prunable(network.config, patch_embed=patch_embed)


def all_kept(model: nn.Module, *, patch_embed: bool = False) -> Masks:
    """The masks of round 0."""
    tensors = network_of(model).state_dict()
    return {name: torch.ones_like(tensors[name], dtype=torch.bool) for name in prunable(model, patch_embed=patch_embed)}


@torch.no_grad()
def by_magnitude(model: nn.Module, masks: Mapping[str, Tensor], rate: float | Fraction) -> Masks:
    """New masks without the `rate` of the remaining weights that are smallest, all tensors compared with each other.

    Exactly floor(rate * remaining) go; of equally small ones those that come first. After k times the density is
    (1 - rate)^k.
    """
    tensors = network_of(model).state_dict()
    _refuse_misfits(masks, tensors)
    sizes = {name: tensors[name].detach()[mask.to(tensors[name].device)].abs() for name, mask in masks.items()}
    if not all(bool(torch.isfinite(size).all()) for size in sizes.values()):
        raise InputError("weights that are not finite cannot be compared", fix="prune the weights of a good checkpoint")
    every = torch.cat(list(sizes.values()))
    number = int(as_written(rate, "rate") * every.numel())
    if number == 0:
        return {name: mask.clone() for name, mask in masks.items()}
    border = every.kthvalue(number).values
    goes = every < border
    equal = (every == border).nonzero().flatten()
    goes[equal[: number - int(goes.sum())]] = True

    new: Masks = {}
    for (name, mask), gone in zip(masks.items(), goes.split([len(size) for size in sizes.values()]), strict=True):
        kept = mask.clone()
        kept[mask] = ~gone.to(mask.device)
        new[name] = kept
    return new


def by_units(model: nn.Module, units: Units) -> Masks:
    """Masks that hold every removed unit at 0, its biases too. The network then says what the smaller one says."""
    tensors = network_of(model).state_dict()
    masks: Masks = {}
    for group in groups_of(model):
        kept = units.kept(group)
        for piece in group.own:
            mask = piece.spread(kept, tensors[piece.name].shape)
            # A convolution between two groups has units of one in its rows and of the other in its columns.
            masks[piece.name] = masks[piece.name] & mask if piece.name in masks else mask.clone()
    return masks


def density(masks: Mapping[str, Tensor]) -> float:
    """Share of the masked tensors' entries that is left."""
    return sum(int(mask.sum()) for mask in masks.values()) / sum(mask.numel() for mask in masks.values())


@torch.no_grad()
def apply_masks(model: nn.Module, masks: Mapping[str, Tensor]) -> None:
    """Set what is masked to 0, in place."""
    tensors = network_of(model).state_dict()
    _refuse_misfits(masks, tensors)
    for name, mask in masks.items():
        tensors[name].masked_fill_(~mask.to(tensors[name].device), 0)


def _refuse_misfits(masks: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> None:
    for name, mask in masks.items():
        shape = tuple(tensors[name].shape) if name in tensors else "no such tensor in the model"
        if shape != tuple(mask.shape) or mask.dtype != torch.bool:
            raise InputError(
                expected(f"mask of {name}", f"yes or no of shape {shape}", f"{mask.dtype} {tuple(mask.shape)}"),
                fix="make the masks from this model",
            )
