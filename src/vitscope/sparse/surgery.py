"""The smaller network: removed units cut out of the tensors, of the config and of what an optimiser remembers."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from vitscope.models.accounting.hollow import build_hollow
from vitscope.models.model import VisionModel
from vitscope.models.vit import ViT
from vitscope.sparse.layout import family_of, groups_of, network_of
from vitscope.sparse.units import Units


@torch.no_grad()
def shrink(model: nn.Module, units: Units) -> VisionModel:
    """A new network of the same family with only the kept units; `model` stays as it is, and shares no memory with it.
    Of attention without heads and of an MLP without neurons their output bias stays.

    It says what `model` says with the removed units at 0. Class names, preprocessing, frozen parameters and the mode of
    the model go with it; where its weights came from (`certificate`) is no longer true of it.
    """
    large = network_of(model)
    counts = {kind: units.counts(kind) for kind in units.kinds}
    cut = cut_tensors(large, large.state_dict(), units)
    small: VisionModel = build_hollow(family_of(large).smaller_config(large.config, counts))
    small.load_state_dict(cut, strict=True, assign=True)
    small.reset_buffers()
    trains = {name: parameter.requires_grad for name, parameter in large.named_parameters()}
    for name, parameter in small.named_parameters():
        parameter.requires_grad_(trains[name])
    modes = {name: module.training for name, module in large.named_modules()}
    for name, module in small.named_modules():
        module.training = modes[name]
    small.grad_checkpointing = large.grad_checkpointing
    if isinstance(large, ViT) and isinstance(small, ViT):
        small.distilled_training = large.distilled_training
    small.preprocessing = large.preprocessing
    small.labels = None if large.labels is None else list(large.labels)
    return small


def cut_tensors(model: nn.Module, tensors: Mapping[str, Tensor], units: Units) -> dict[str, Tensor]:
    """Copies of `tensors` (weights, or a running mean of them, by the names of the large `model`) for the small one.
    What it does not have, because no unit of a group is left, is not among them."""
    cut = dict(tensors)
    for group in groups_of(model):
        kept = units.kept(group)
        if group.count and not bool(kept.any()):
            for name in (*(piece.name for piece in group.pieces), *group.beside):
                cut.pop(name, None)
        elif not bool(kept.all()):
            for piece in group.pieces:
                if piece.name in cut:
                    cut[piece.name] = piece.cut(cut[piece.name].detach(), kept)
    return {name: t.detach().clone() if t is tensors[name] else t for name, t in cut.items()}


def slice_optimizer_state(
    model: nn.Module, state: Mapping[str, Mapping[str, Tensor]], units: Units
) -> dict[str, dict[str, Tensor]]:
    """What `Optimizer.state_dict` of the large `model` remembers, for the optimiser of the small one.

    What is remembered of each number of a parameter (moments, momentum) is cut as the parameter is; counts of steps are
    copied. AdamW, Adam and SGD then go on as if the removed units had stayed at 0. So does Muon, but that the length
    of its steps goes by the longer side of a matrix, which may be shorter now.
    """
    shapes = {name: parameter.shape for name, parameter in network_of(model).named_parameters()}
    keys = {key for tensors in state.values() for key in tensors}
    stays = cut_tensors(model, {name: torch.empty(shapes[name], device="meta") for name in state}, units)
    sliced: dict[str, dict[str, Tensor]] = {name: {} for name in stays}
    for key in sorted(keys):
        like_weights = {
            name: tensors[key]
            for name, tensors in state.items()
            if key in tensors and tensors[key].shape == shapes[name]
        }
        for name, tensor in cut_tensors(model, like_weights, units).items():
            sliced[name][key] = tensor
        for name, tensors in state.items():
            if key in tensors and name not in like_weights and name in stays:
                sliced[name][key] = tensors[key].detach().clone()
    return sliced
