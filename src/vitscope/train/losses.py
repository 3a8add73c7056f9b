"""What training minimises, for labels that are numbers and for labels that are shares (mixed pictures, teachers).

B batch, K classes.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from vitscope.core.errors import InputError, expected


def cross_entropy(
    logits: Tensor, labels: Tensor, *, smoothing: float = 0.0, class_weights: Tensor | None = None
) -> Tensor:
    """Mean cross-entropy of logits (B, K) against labels (B,) or shares (B, K), in float32.

    Smoothing is torch's: s / K on every class, the true one included. With class weights w the mean is weighted by
    what each picture really is, sum of w over its shares, so that a share of 1 counts exactly as the number does;
    torch's own function divides by B instead as soon as labels are shares.
    """
    _refuse_shapes(logits, labels)
    logits = logits.float()
    if labels.ndim == 1:
        return F.cross_entropy(logits, labels, weight=class_weights, label_smoothing=smoothing)
    shares = labels.float()
    smoothed = shares * (1 - smoothing) + shares.sum(-1, keepdim=True) * (smoothing / logits.shape[-1])
    surprise = -F.log_softmax(logits, dim=-1)
    if class_weights is None:
        return (smoothed * surprise).sum(-1).mean()
    weights = class_weights.float()
    return (smoothed * weights * surprise).sum() / (shares * weights).sum()


def binary_cross_entropy(
    logits: Tensor, labels: Tensor, *, smoothing: float = 0.0, class_weights: Tensor | None = None
) -> Tensor:
    """Every class a question of its own (Wightman et al. 2021, arXiv 2110.00476): summed over classes, mean over the
    batch, in float32. The shares of mixed pictures are the answers; smoothing moves them towards s / K."""
    _refuse_shapes(logits, labels)
    logits = logits.float()
    num_classes = logits.shape[-1]
    shares = F.one_hot(labels, num_classes).float() if labels.ndim == 1 else labels.float()
    answers = shares * (1 - smoothing) + smoothing / num_classes
    return F.binary_cross_entropy_with_logits(logits, answers, weight=class_weights, reduction="none").sum(-1).mean()


def class_weights(counts: np.ndarray, power: float = 1.0) -> Tensor:
    """(K,) weights against imbalance: count ** -power, scaled so that a picture weighs 1 on average.

    `power` 1 makes every class count the same in sum; 0.5 goes half the way; 0 changes nothing. A class without
    pictures weighs 0: nothing is known of it.
    """
    counts = np.asarray(counts, dtype=np.float64)
    if counts.ndim != 1 or counts.sum() <= 0 or counts.min() < 0:
        raise InputError(expected("counts", "(K,) numbers of pictures, not all 0", counts.tolist()))
    seen = counts > 0
    weights = np.where(seen, np.where(seen, counts, 1.0) ** -power, 0.0)
    weights *= counts.sum() / (weights * counts).sum()
    return torch.from_numpy(weights.astype(np.float32))


def _refuse_shapes(logits: Tensor, labels: Tensor) -> None:
    fits = labels.shape == logits.shape or labels.shape == logits.shape[:1]
    if logits.ndim != 2 or not fits:
        wanted = "(B,) numbers or (B, K) shares for logits (B, K)"
        raise InputError(expected("labels", wanted, f"{tuple(labels.shape)} for {tuple(logits.shape)}"))
