"""How much the loss would change without a unit, to first order (Molchanov et al. 2019, arXiv 1906.10771).

(sum of w * dL/dw over all entries of the unit)^2, averaged over batches. The sum is dL/dz of a gate z = 1 on the unit.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.func import functional_call

from vitscope.models.modes import in_mode
from vitscope.sparse.choose import Scores
from vitscope.sparse.criteria.evidence import Evidence
from vitscope.sparse.layout import network_of
from vitscope.sparse.pieces import Group


def saliency(evidence: Evidence) -> Scores:
    """Neither weights nor their gradients are touched; frozen weights count too."""
    network, totals = network_of(evidence.model), dict[Group, Tensor]()
    names = list(dict.fromkeys(piece.name for group in evidence.groups for piece in group.own))
    weights = {name: evidence.tensors[name].detach().requires_grad_() for name in names}
    count = 0
    with in_mode(network, training=False), torch.enable_grad():
        for images, labels in evidence.each_batch():
            loss = evidence.loss(functional_call(network, weights, (images,)), labels)
            slopes = torch.autograd.grad(loss, list(weights.values()))
            with torch.no_grad():
                moved = {name: weights[name].double() * slope for name, slope in zip(names, slopes, strict=True)}
                for group in evidence.groups:
                    squared = group.sums(moved).square().cpu()
                    totals[group] = totals[group] + squared if group in totals else squared
            count += 1
    return evidence.by_kind(lambda group: totals[group] / count)
