"""Nearest neighbours as a classifier, as DINO weighs them (Caron et al. 2021, arXiv 2104.14294): no training at all.

A picture gets the class its nearest labelled pictures have, by cosine; each votes with exp(cosine / temperature).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from vitscope.core.errors import InputError, UsageError, expected

GRID = (10, 20, 100, 200)
TEMPERATURE = 0.07
COMPARED_AT_ONCE = 1 << 25
"""Cosines that are held at a time."""


@dataclass(frozen=True)
class Neighbours:
    """Of some pictures, the nearest of the bank, the nearest first."""

    cosines: Tensor
    """(B, k)"""
    places: Tensor
    """(B, k): rows of the bank."""


def nearest_rows(bank: Tensor, asked: Tensor, k: int, *, device: torch.device | str = "cpu") -> Iterator[Neighbours]:
    """For `asked` (M, D), some rows at a time, the `k` nearest rows of `bank` (N, D), on the CPU."""
    _refuse_other_widths(bank, asked)
    bank = F.normalize(bank.to(device, torch.float32), dim=1)
    rows = max(1, COMPARED_AT_ONCE // len(bank))
    for some in asked.split(rows):
        cosines = F.normalize(some.to(device, torch.float32), dim=1) @ bank.T
        best = cosines.topk(min(k, len(bank)), dim=1)
        yield Neighbours(best.values.cpu(), best.indices.cpu())


def votes(near: Neighbours, labels: Tensor, k: int, *, num_classes: int, temperature: float | None) -> Tensor:
    """(B, K): what the `k` nearest say. Without a temperature all of them count alike."""
    cosines, classes = near.cosines[:, :k], labels[near.places[:, :k]]
    weights = torch.ones_like(cosines) if temperature is None else (cosines / temperature).exp()
    return torch.zeros(len(cosines), num_classes).scatter_add_(1, classes, weights)


def knn_accuracy(
    bank: Tensor,
    labels: Tensor,
    asked: Tensor,
    truth: Tensor,
    *,
    grid: Sequence[int] = GRID,
    temperature: float | None = TEMPERATURE,
    num_classes: int | None = None,
    device: torch.device | str = "cpu",
) -> dict[int, float]:
    """The share of `asked` (M, D) that gets its class right, for every number of neighbours in `grid` that `bank` (N,
    D) can give."""
    usable = usable_grid(grid, len(bank))
    classes = num_classes or int(max(labels.max(), truth.max())) + 1
    right = dict.fromkeys(usable, 0)
    start = 0
    for near in nearest_rows(bank, asked, max(usable), device=device):
        wanted = truth[start : start + len(near.places)]
        start += len(wanted)
        for k in usable:
            said = votes(near, labels, k, num_classes=classes, temperature=temperature).argmax(1)
            right[k] += int((said == wanted).sum())
    return {k: count / len(truth) for k, count in right.items()}


def usable_grid(grid: Sequence[int], count: int) -> list[int]:
    """Those of the grid that `count` pictures can give; all pictures where there are fewer than any asks for."""
    if not grid or min(grid) < 1:
        raise UsageError(expected("k", "numbers of neighbours from 1", list(grid)), where="nearest neighbours")
    return sorted({k for k in grid if k <= count}) or [count]


def _refuse_other_widths(bank: Tensor, asked: Tensor) -> None:
    if bank.ndim != 2 or asked.ndim != 2 or bank.shape[1] != asked.shape[1] or not len(bank):
        shapes = f"{tuple(bank.shape)} and {tuple(asked.shape)}"
        raise InputError(
            expected("features", "one vector per picture, (N, D) and (M, D), N from 1", shapes),
            fix="take tokens 'pooled', 'cls' or 'mean'",
        )
