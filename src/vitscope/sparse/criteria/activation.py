"""How much a unit says, over pictures, in what the next layer reads of it: proj of a head, fc2 of a neuron, the next
convolution or the head of a channel.

B batch, N tokens or places, c units, d numbers a unit (head_dim, or 1).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from vitscope.models.modes import in_mode
from vitscope.sparse.choose import Scores
from vitscope.sparse.criteria.evidence import Evidence
from vitscope.sparse.layout import network_of
from vitscope.sparse.pieces import Group


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
    network = network_of(evidence.model)
    sums: dict[Group, Tensor] = {}
    spoken = [group for group in evidence.groups if group.count]
    numbers: dict[Group, int] = dict.fromkeys(spoken, 0)

    def listen(group: Group) -> Callable[[nn.Module, tuple[Any, ...]], None]:
        def hear(module: nn.Module, inputs: tuple[Any, ...]) -> None:
            axis = 1 if isinstance(module, nn.Conv2d) else -1
            said = measure(inputs[0].float()).movedim(axis, 0).unflatten(0, (group.count, -1))  # (c, d, B, ...)
            total = said.flatten(1).sum(1).double().cpu()
            sums[group] = sums[group] + total if group in sums else total
            numbers[group] += said.numel() // group.count

        return hear

    handles = [network.get_submodule(group.reader).register_forward_pre_hook(listen(group)) for group in spoken]
    try:
        with in_mode(network, training=False):
            for images, _ in evidence.each_batch():
                network(images)
    finally:
        for handle in handles:
            handle.remove()
    silent = {group: torch.zeros(0, dtype=torch.float64) for group in evidence.groups if not group.count}
    return {group: total / numbers[group] for group, total in sums.items()} | silent
