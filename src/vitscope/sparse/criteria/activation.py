"""How much a unit says, over pictures: a head in what proj reads of it, a neuron in what fc2 reads of it.

B batch, N tokens, c units, d numbers a unit (head_dim, or 1).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from vitscope.models.modes import in_mode
from vitscope.sparse.choose import Scores
from vitscope.sparse.criteria.evidence import Evidence
from vitscope.sparse.layout import HEADS, Group, vit_of


def l1(evidence: Evidence) -> Scores:
    """The mean of |activation|."""
    means = _means(evidence, torch.abs)
    return evidence.by_kind(lambda group: means[group])


def l2(evidence: Evidence) -> Scores:
    """The root of the mean square of the activation."""
    means = _means(evidence, torch.square)
    return evidence.by_kind(lambda group: means[group].sqrt())


@torch.no_grad()
def _means(evidence: Evidence, measure: Callable[[Tensor], Tensor]) -> dict[Group, Tensor]:
    """(c,) each: means over all pictures, tokens and numbers of a unit, while the network runs as it predicts."""
    vit = vit_of(evidence.model)
    sums: dict[Group, Tensor] = {}
    spoken = [group for group in evidence.groups if group.count]
    numbers: dict[Group, int] = dict.fromkeys(spoken, 0)

    def listen(group: Group) -> Callable[[nn.Module, tuple[Any, ...]], None]:
        def hear(module: nn.Module, inputs: tuple[Any, ...]) -> None:
            said = measure(inputs[0].float()).unflatten(-1, (group.count, -1))  # (B, N, c, d)
            total = said.sum((0, 1, 3)).double().cpu()
            sums[group] = sums[group] + total if group in sums else total
            numbers[group] += said.numel() // group.count

        return hear

    handles = [vit.get_submodule(_reader(group)).register_forward_pre_hook(listen(group)) for group in spoken]
    try:
        with in_mode(vit, training=False):
            for images, _ in evidence.each_batch():
                vit(images)
    finally:
        for handle in handles:
            handle.remove()
    silent = {group: torch.zeros(0, dtype=torch.float64) for group in evidence.groups if not group.count}
    return {group: total / numbers[group] for group, total in sums.items()} | silent


def _reader(group: Group) -> str:
    """The layer that reads the units' activations."""
    return f"blocks.{group.block}.{'attn.proj' if group.kind == HEADS else 'mlp.fc2'}"
