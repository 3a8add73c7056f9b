"""Does a model mean it when it says 90 %? The expected calibration error, and the temperature that brings it down.

Guo et al. 2017 (arXiv 1706.04599): logits divided by one number, chosen on labelled pictures the model was not trained
on. Which class is first does not change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from vitscope.core.errors import InputError, expected

BINS = 15
LEAST, MOST = 0.05, 20.0
"""Temperatures outside these say that something else is wrong."""
STEPS = 80


@dataclass(frozen=True)
class Bin:
    """Answers of about the same confidence."""

    count: int
    confidence: float
    """Their mean."""
    accuracy: float


@dataclass(frozen=True)
class Calibration:
    """What a temperature does on pictures it was not chosen on."""

    temperature: float
    ece_before: float
    ece_after: float
    loss_before: float
    loss_after: float
    count: int


def confidence_bins(probabilities: Tensor, labels: Tensor, *, bins: int = BINS) -> list[Bin]:
    """Answers sorted by confidence into bins of equal width; empty ones are left out."""
    _refuse_other_shapes(probabilities, labels)
    confidence, predicted = probabilities.double().max(-1)
    right = (predicted == labels).double()
    places = (confidence * bins).long().clamp(max=bins - 1)
    found = []
    for place in range(bins):
        inside = places == place
        if inside.any():
            found.append(Bin(int(inside.sum()), confidence[inside].mean().item(), right[inside].mean().item()))
    return found


def expected_calibration_error(probabilities: Tensor, labels: Tensor, *, bins: int = BINS) -> float:
    """The mean distance between confidence and accuracy, each bin counted by its pictures."""
    found = confidence_bins(probabilities, labels, bins=bins)
    return sum(one.count * abs(one.confidence - one.accuracy) for one in found) / len(labels)


def best_temperature(logits: Tensor, labels: Tensor) -> float:
    """The one of the lowest cross-entropy. The loss is convex in 1 / temperature, so halving an interval finds it."""
    _refuse_other_shapes(logits, labels)
    logits = logits.double()
    low, high = 1 / MOST, 1 / LEAST
    for _ in range(STEPS):
        middle = (low + high) / 2
        shares = (logits * middle).softmax(-1)
        slope = ((shares * logits).sum(-1) - logits.gather(1, labels[:, None])[:, 0]).mean().item()
        low, high = (low, middle) if slope > 0 else (middle, high)
    return 2 / (low + high)


def calibrate(chosen_on: Sequence[Tensor], told_on: Sequence[Tensor]) -> Calibration:
    """Logits and labels a temperature is chosen on, and others it is judged by."""
    temperature = best_temperature(*chosen_on)
    logits, labels = told_on
    logits = logits.double()
    return Calibration(
        temperature=temperature,
        ece_before=expected_calibration_error(logits.softmax(-1), labels),
        ece_after=expected_calibration_error((logits / temperature).softmax(-1), labels),
        loss_before=F.cross_entropy(logits, labels).item(),
        loss_after=F.cross_entropy(logits / temperature, labels).item(),
        count=len(labels),
    )


def _refuse_other_shapes(rows: Tensor, labels: Tensor) -> None:
    if rows.ndim != 2 or labels.shape != rows.shape[:1] or not len(labels):
        shapes = f"{tuple(rows.shape)} and {tuple(labels.shape)}"
        raise InputError(expected("logits and labels", "(N, K) and (N,), N from 1", shapes), where="calibration")
    if not torch.isfinite(rows).all():
        raise InputError(expected("logits", "finite numbers", "some that are not"), where="calibration")
