"""The smaller network: removed units cut out of the tensors, of the config and of what an optimiser remembers."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from vitscope.core.config import updated
from vitscope.core.errors import UsageError
from vitscope.models.accounting.hollow import build_hollow
from vitscope.models.config import ViTConfig
from vitscope.models.vit import ViT
from vitscope.sparse.layout import HEADS, NEURONS, groups_of, vit_of
from vitscope.sparse.units import Units


@torch.no_grad()
def shrink(model: nn.Module, units: Units) -> ViT:
    """A new network of the same family with only the kept units; `model` stays as it is, and shares no memory with it.

    It says what `model` says with the removed units at 0. Class names, preprocessing, frozen parameters and the mode of
    the model go with it; where its weights came from (`certificate`) is no longer true of it.
    """
    vit = vit_of(model)
    small: ViT = build_hollow(smaller_config(vit.config, units))
    small.load_state_dict(cut_tensors(vit, vit.state_dict(), units), strict=True, assign=True)
    small.reset_buffers()
    trains = {name: parameter.requires_grad for name, parameter in vit.named_parameters()}
    for name, parameter in small.named_parameters():
        parameter.requires_grad_(trains[name])
    modes = {name: module.training for name, module in vit.named_modules()}
    for name, module in small.named_modules():
        module.training = modes[name]
    small.distilled_training, small.grad_checkpointing = vit.distilled_training, vit.grad_checkpointing
    small.preprocessing = vit.preprocessing
    small.labels = None if vit.labels is None else list(vit.labels)
    return small


def smaller_config(config: ViTConfig, units: Units) -> ViTConfig:
    """Heads and neurons block by block; a head is as wide as before."""
    heads, neurons = units.counts(HEADS), units.counts(NEURONS)
    for kind, counts in ((HEADS, heads), (NEURONS, neurons)):
        if 0 in counts:
            part = "attention" if kind == HEADS else "MLP"
            raise UsageError(
                f"block {counts.index(0)} has no {kind} left, and a model's settings have no word for a block whose "
                f"{part} is only a bias",
                where="vitscope.sparse.shrink",
                fix=f"keep at least one of the {kind} in each block (allow_empty=False)",
            )
    return updated(
        config,
        num_heads=_one_if_alike(heads),
        head_dim=config.dim_per_head,
        mlp_dim=_one_if_alike(neurons),
    )


def cut_tensors(model: nn.Module, tensors: Mapping[str, Tensor], units: Units) -> dict[str, Tensor]:
    """Copies of `tensors` (weights, or a running mean of them, by the names of the large `model`) for the small one."""
    cut = dict(tensors)
    for group in groups_of(model):
        kept = units.kept(group)
        if not bool(kept.all()):
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
    shapes = {name: parameter.shape for name, parameter in vit_of(model).named_parameters()}
    keys = {key for tensors in state.values() for key in tensors}
    sliced: dict[str, dict[str, Tensor]] = {name: {} for name in state}
    for key in sorted(keys):
        like_weights = {
            name: tensors[key]
            for name, tensors in state.items()
            if key in tensors and tensors[key].shape == shapes[name]
        }
        for name, tensor in cut_tensors(model, like_weights, units).items():
            sliced[name][key] = tensor
        for name, tensors in state.items():
            if key in tensors and name not in like_weights:
                sliced[name][key] = tensors[key].detach().clone()
    return sliced


def _one_if_alike(counts: tuple[int, ...]) -> int | tuple[int, ...]:
    """One number where all blocks are alike: such a model is still any other library's."""
    return counts[0] if len(set(counts)) == 1 else counts
