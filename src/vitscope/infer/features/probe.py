"""Linear classifiers on features that stay as they are, a whole grid of learning rates trained at once.

As DINOv2's linear evaluation (Oquab et al. 2023, arXiv 2304.07193): SGD with momentum, no weight decay, lr falling as a
cosine to 0. All heads of a layer see the same batches, so one product serves them, and each ends where it would end if
trained alone. Features are first brought to mean 0 and spread 1 (as by MAE's BatchNorm), so that one grid of learning
rates suits every layer and family. N pictures, D width, H heads, K classes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from vitscope.core.errors import InputError, UsageError, expected
from vitscope.core.seed import derive_seed

LRS = (1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0)
MOMENTUM = 0.9
BATCH_SIZE = 256
SHOWN = 1_000_000
"""Pictures each head sees, where nobody says for how many epochs it trains."""
LEAST_EPOCHS, MOST_EPOCHS = 10, 200
SMALLEST_SPREAD = 1e-6
"""Of the largest: features that vary less are taken for constant."""
JUDGED_AT_ONCE = 4096


@dataclass(frozen=True)
class Heads:
    """Linear classifiers for features as they are: standardising is folded in."""

    weights: Tensor
    """(H, K, D)"""
    biases: Tensor
    """(H, K)"""

    def logits(self, values: Tensor) -> Tensor:
        """(B, D) -> (B, H, K)"""
        heads, classes, width = self.weights.shape
        flat = values.to(self.weights) @ self.weights.reshape(-1, width).T
        return flat.unflatten(1, (heads, classes)) + self.biases


@dataclass(frozen=True)
class Standard:
    """What brings features to mean 0 and spread 1."""

    mean: Tensor
    spread: Tensor

    @classmethod
    def of(cls, values: Tensor) -> Standard:
        """Of the training pictures (N, D); a feature that hardly varies keeps its size."""
        spread, mean = torch.std_mean(values.double(), 0, correction=0)
        constant = spread <= SMALLEST_SPREAD * max(float(spread.max()), 1e-30)
        return cls(mean.float(), torch.where(constant, 1.0, spread).float())

    def __call__(self, values: Tensor) -> Tensor:
        return (values.float() - self.mean) / self.spread

    def folded(self, weights: Tensor, biases: Tensor) -> Heads:
        """Heads for standardised features, as heads for features as they are."""
        own = weights.double() / self.spread.double()
        return Heads(own.float(), (biases.double() - own @ self.mean.double()).float())


def train_heads(
    values: Tensor,
    labels: Tensor,
    *,
    num_classes: int,
    lrs: Sequence[float] = LRS,
    epochs: int | None = None,
    batch_size: int = BATCH_SIZE,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> Heads:
    """A head for each learning rate, on features (N, D) and labels (N,)."""
    _refuse(values, labels, num_classes, lrs)
    epochs = epochs or default_epochs(len(values))
    device = torch.device(device)
    standard = Standard.of(values)
    count, width = values.shape
    batch_size = min(batch_size, count)
    steps = epochs * -(-count // batch_size)
    weights = torch.zeros(len(lrs) * num_classes, width, device=device)
    biases = torch.zeros(len(lrs) * num_classes, device=device)
    speeds = torch.zeros_like(weights), torch.zeros_like(biases)
    rates = torch.tensor(lrs, device=device).repeat_interleave(num_classes)
    step = 0
    for epoch in range(epochs):
        for rows in epoch_order(count, seed, epoch).split(batch_size):
            images = standard(values[rows]).to(device)
            logits = (images @ weights.T + biases).unflatten(1, (len(lrs), num_classes))
            wanted = F.one_hot(labels[rows].to(device), num_classes)[:, None]
            errors = ((logits.softmax(-1) - wanted) / len(rows)).flatten(1)  # the cross-entropy's gradient
            share = 0.5 * (1 + math.cos(math.pi * step / steps))
            for kept, speed, slope in zip((weights, biases), speeds, (errors.T @ images, errors.sum(0)), strict=True):
                speed.mul_(MOMENTUM).add_(slope)
                kept.sub_((share * rates if kept.ndim == 1 else share * rates[:, None]) * speed)
            step += 1
    shape = (len(lrs), num_classes)
    return standard.folded(weights.unflatten(0, shape).cpu(), biases.unflatten(0, shape).cpu())


def judge_heads(heads: Heads, values: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Accuracy and mean cross-entropy of every head: both (H,)."""
    right = torch.zeros(len(heads.weights), dtype=torch.float64)
    loss = torch.zeros(len(heads.weights), dtype=torch.float64)
    for some, wanted in zip(values.split(JUDGED_AT_ONCE), labels.split(JUDGED_AT_ONCE), strict=True):
        logits = heads.logits(some)
        right += (logits.argmax(-1) == wanted[:, None]).sum(0)
        each = wanted[:, None].expand(-1, logits.shape[1])
        loss += F.cross_entropy(logits.transpose(1, 2), each, reduction="none").double().sum(0)
    return right / len(labels), loss / len(labels)


def default_epochs(count: int) -> int:
    """Few pictures are shown more often: a million in all, each at least 10 and at most 200 times."""
    return min(MOST_EPOCHS, max(LEAST_EPOCHS, -(-SHOWN // count)))


def epoch_order(count: int, seed: int, epoch: int) -> Tensor:
    """The pictures of an epoch, shuffled: always the same for the same seed."""
    generator = torch.Generator().manual_seed(derive_seed(seed, "probe", epoch))
    return torch.randperm(count, generator=generator)


def _refuse(values: Tensor, labels: Tensor, num_classes: int, lrs: Sequence[float]) -> None:
    if values.ndim != 2 or labels.shape != values.shape[:1] or not len(values):
        shapes = f"{tuple(values.shape)} and {tuple(labels.shape)}"
        raise InputError(
            expected("features and labels", "one vector per picture, (N, D) and (N,), N from 1", shapes),
            fix="take tokens 'pooled', 'cls' or 'mean'",
        )
    if not lrs or not all(lr > 0 and math.isfinite(lr) for lr in lrs):
        raise UsageError(expected("lrs", "positive numbers", list(lrs)), where="linear probe")
    if labels.min() < 0 or labels.max() >= num_classes:
        raise InputError(expected("labels", f"0 to {num_classes - 1}", f"{labels.min()} to {labels.max()}"))
