"""Losses: torch's own where it has one, the same value for a label and for a share of 1."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from vitscope.core.errors import InputError
from vitscope.train.losses import binary_cross_entropy, class_weights, cross_entropy

torch.manual_seed(0)
LOGITS = torch.randn(12, 5, dtype=torch.float64) * 3
LABELS = torch.randint(0, 5, (12,))
SHARES = torch.softmax(torch.randn(12, 5), -1)
WEIGHTS = torch.tensor([0.5, 1.0, 2.0, 0.1, 3.0])


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_numbers_are_torchs_cross_entropy(smoothing: float) -> None:
    ours = cross_entropy(LOGITS, LABELS, smoothing=smoothing, class_weights=WEIGHTS)
    theirs = F.cross_entropy(LOGITS.float(), LABELS, weight=WEIGHTS, label_smoothing=smoothing)
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_shares_are_torchs_cross_entropy(smoothing: float) -> None:
    ours = cross_entropy(LOGITS, SHARES, smoothing=smoothing)
    torch.testing.assert_close(ours, F.cross_entropy(LOGITS.float(), SHARES, label_smoothing=smoothing))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weights", [None, WEIGHTS])
@pytest.mark.parametrize("loss", [cross_entropy, binary_cross_entropy])
def test_a_share_of_one_counts_as_the_number(loss, weights, smoothing: float) -> None:  # type: ignore[no-untyped-def]
    hot = F.one_hot(LABELS, 5)
    ours = loss(LOGITS, hot, smoothing=smoothing, class_weights=weights)
    torch.testing.assert_close(ours, loss(LOGITS, LABELS, smoothing=smoothing, class_weights=weights))


def test_mixed_is_the_mix_of_the_losses() -> None:
    other = LABELS.roll(1)
    mixed = 0.3 * F.one_hot(LABELS, 5) + 0.7 * F.one_hot(other, 5)
    both = 0.3 * cross_entropy(LOGITS, LABELS) + 0.7 * cross_entropy(LOGITS, other)
    torch.testing.assert_close(cross_entropy(LOGITS, mixed), both)


def test_loss_of_a_guess_is_the_logarithm_of_the_classes() -> None:
    flat = torch.zeros(4, 10)
    labels = torch.arange(4)
    assert cross_entropy(flat, labels).item() == pytest.approx(math.log(10))
    assert cross_entropy(flat, labels, smoothing=0.1).item() == pytest.approx(math.log(10))
    assert binary_cross_entropy(flat, labels).item() == pytest.approx(10 * math.log(2))


def test_half_precision_is_computed_in_float32() -> None:
    low = LOGITS.to(torch.bfloat16)
    for loss in (cross_entropy, binary_cross_entropy):
        assert loss(low, LABELS).dtype == torch.float32
        assert loss(low, SHARES).dtype == torch.float32


def test_weights_make_classes_count_alike() -> None:
    counts = np.array([900, 90, 10])
    weights = class_weights(counts).numpy()
    np.testing.assert_allclose(weights * counts, 1000 / 3, rtol=1e-6)
    half = class_weights(counts, power=0.5).numpy()
    assert half[2] / half[0] == pytest.approx(math.sqrt(90), rel=1e-5)
    assert float((half * counts).sum()) == pytest.approx(1000, rel=1e-6)
    assert class_weights(counts, power=0.0).tolist() == [1, 1, 1]
    assert class_weights(np.array([5, 0, 5])).tolist() == [1, 0, 1]


@pytest.mark.parametrize("labels", [torch.zeros(11, dtype=torch.int64), torch.zeros(12, 4), torch.zeros(12, 5, 1)])
def test_labels_of_another_shape_are_refused(labels: torch.Tensor) -> None:
    for loss in (cross_entropy, binary_cross_entropy):
        with pytest.raises(InputError, match="labels: expected"):
            loss(LOGITS, labels)
