"""Verdicts on learning curves: made ones of many shapes, lengths and noises, and the edges of what a curve can be."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pytest

from vitscope.doctor.curve import Curve, CurveVerdict, judge_curve

CHANCE = math.log(10)
ALARMS = {"overfitting", "underfitting", "oscillating", "diverged", "plateaued"}


class Made(NamedTuple):
    train: np.ndarray
    val: np.ndarray
    began: int | None = None


def falls(count: int) -> Iterator[np.ndarray]:
    """From about 1 to about 0: as an exponential, a power, a cosine, in steps, after a while."""
    epoch = np.arange(count)
    part = epoch / count
    for rate in (3, 5, 10):
        yield np.exp(-rate * part)
    yield (1.0 + epoch) ** -0.8
    yield 0.475 * (1 + np.cos(np.pi * part))
    third = np.floor(3 * part)
    yield 0.6 * 0.5**third * (1 + 0.5 * np.exp(-9 * (3 * part - third)))
    yield 1 / (1 + np.exp(12 * (part - 0.4)))


def healthy(count: int) -> Iterator[Made]:
    for fall in falls(count):
        for train, val in ((0.02, 0.1), (0.2, 0.25), (0.05, 0.3)):
            yield Made(CHANCE * (train + (0.95 - train) * fall), CHANCE * (val + (0.95 - val) * fall))


def overfitting(count: int) -> Iterator[Made]:
    """Validation falls, may be flat for a while, and rises by 60 % and more."""
    epoch = np.arange(count)
    for rate in (5, 10):
        for share, rise in ((0.3, 0.6), (0.5, 0.6), (0.3, 1.5), (0.6, 1.5)):
            turn = int(share * count)
            val = 0.3 + 0.65 * np.exp(-rate * np.minimum(epoch, turn) / (0.5 * count))
            up = rise * np.maximum(epoch - turn, 0) / (count - 1 - turn)
            yield Made(CHANCE * (0.02 + 0.9 * np.exp(-rate * epoch / count)), CHANCE * val * (1 + up), turn + 1)


def underfitting(count: int) -> Iterator[Made]:
    for level in (0.72, 0.76, 0.8):
        for rate in (5, 15):
            train = level + (1 - level) * np.exp(-rate * np.arange(count) / count)
            yield Made(CHANCE * train, CHANCE * (train + 0.03))


def plateaued(count: int) -> Iterator[Made]:
    for level in (0.95, 1.0):
        train = level + (1.02 - level) * np.exp(-np.arange(count) / 2)
        yield Made(CHANCE * train, np.full(count, CHANCE * (level + 0.01)), 1)


def oscillating(count: int) -> Iterator[Made]:
    epoch = np.arange(count)
    for period in (2.0,) if count < 30 else (2.0, 2.5, 3.3, 5.0):
        for size in (0.4,) if count < 30 else (0.25, 0.5):
            for first in (0,) if count < 30 else (0, count // 3):
                wave = size * np.cos(2 * np.pi * epoch / period) * (epoch >= first)
                for fall in (np.exp(-5 * epoch / count), np.full(count, 0.3)):
                    train = CHANCE * (0.1 + 0.85 * fall)
                    yield Made(train * np.exp(wave), 1.1 * train * np.exp(0.7 * wave), first + 1)


def diverged(count: int) -> Iterator[Made]:
    """Into NaN, far up, or back to where it knew nothing."""
    for share in (0.4, 0.6):
        at = int(share * count)
        for end in (math.nan, 5 * CHANCE, CHANCE):
            train = CHANCE * (0.1 + 0.85 * np.exp(-8 * np.arange(count) / count))
            train[at:] = end
            yield Made(train, 1.02 * train, at + 1)


FAMILIES = {
    "overfitting": (overfitting, 12),
    "underfitting": (underfitting, 16),
    "plateaued": (plateaued, 16),
    "oscillating": (oscillating, 16),
    "diverged": (diverged, 20),
}
"""What is made, and from how many epochs on it is clear."""


def verdicts(curves: Iterator[Made], noise: float, seeds: int, kind: str = "normal") -> list[tuple[Made, CurveVerdict]]:
    """Noise is a share of the loss, another one for training and validation."""
    found = []
    for number, made in enumerate(curves):
        rng = np.random.default_rng([number, len(made.train), round(100 * noise)])
        for _ in range(seeds):
            drawn = rng.standard_normal((2, len(made.train)))
            if kind == "heavy":
                drawn = np.clip(rng.standard_t(3, drawn.shape) / math.sqrt(3), -4, 4)
            factor = np.maximum(1 + noise * drawn, 0.02) if kind == "normal" else np.exp(noise * drawn)
            found.append((made, judge(made.train * factor[0], made.val * factor[1])))
    return found


def judge(train: object, val: object, **more: object) -> CurveVerdict:
    losses = [float(loss) for loss in train]  # pyright: ignore
    others = [None if loss is None else float(loss) for loss in val]  # pyright: ignore
    given = {"epochs": list(range(1, len(losses) + 1)), "loss_at_chance": CHANCE, **more}
    return judge_curve(Curve(train_loss=losses, val_loss=others, **given))  # pyright: ignore


@pytest.mark.parametrize("kind", ["normal", "logs", "heavy"])
@pytest.mark.parametrize("noise", [0.0, 0.02, 0.05, 0.1, 0.2, 0.3])
def test_healthy_curves_raise_no_alarm(noise: float, kind: str) -> None:
    """At most one in a hundred, of short and long curves together, however large the noise."""
    asked, alarms = 0, []
    for count, seeds in ((3, 1), (6, 5), (10, 6), (20, 6), (50, 5), (200, 2)):
        kinds = [verdict.kind for _, verdict in verdicts(healthy(count), noise, 1 if noise == 0 else seeds, kind)]
        asked += len(kinds)
        alarms += [(count, one) for one in kinds if one in ALARMS]
        if noise <= 0.05 and count >= 20:
            assert kinds.count("healthy") >= 0.97 * len(kinds), count
    assert len(alarms) <= (0.01 * asked if noise >= 0.2 else 0), alarms


@pytest.mark.parametrize("noise", [0.0, 0.02, 0.05])
@pytest.mark.parametrize("family", FAMILIES)
def test_clear_cases_are_found_with_where_they_began(family: str, noise: float) -> None:
    make, clear = FAMILIES[family]
    for count in (clear, 20, 40, 200):
        if count < clear:
            continue
        curves = len(list(make(count)))
        found = verdicts(make(count), noise, 1 if noise == 0 else math.ceil(40 / curves))
        right = [(made, verdict) for made, verdict in found if verdict.kind == family]
        assert len(right) >= 0.95 * len(found), (count, [verdict.kind for _, verdict in found])
        off = [abs(verdict.began - made.began) for made, verdict in right if made.began and verdict.began]
        assert len(off) == (0 if family == "underfitting" else len(right))
        if off:
            assert np.median(off) <= max(2, 0.03 * count), (count, off)
            assert np.quantile(off, 0.9) <= max(4, 0.1 * count), (count, off)


@pytest.mark.parametrize("family", FAMILIES)
def test_noise_that_hides_the_answer_makes_it_unclear_not_wrong(family: str) -> None:
    make, _ = FAMILIES[family]
    right = {family, "not enough data"} | (
        {"underfitting", "plateaued"} if family in ("underfitting", "plateaued") else set()
    )
    for count in (20, 40, 100):
        kinds = [verdict.kind for _, verdict in verdicts(make(count), 0.3, 6)]
        assert sum(kind not in right for kind in kinds) <= max(1, 0.05 * len(kinds)), (count, kinds)


@pytest.mark.parametrize("family", [healthy, overfitting, underfitting, oscillating])
def test_few_epochs_are_never_enough(family: object) -> None:
    for count in (3, 4, 5):
        for made in family(count):  # pyright: ignore
            assert judge(made.train, made.val).kind == "not enough data"


def test_nothing_at_all_is_not_enough() -> None:
    assert judge([], []).kind == "not enough data"
    assert judge([2.0], [2.1]).kind == "not enough data"
    assert judge([2.0], [None]).kind == "not enough data"


def smooth(count: int = 30, low: float = 0.1) -> np.ndarray:
    return CHANCE * (low + (0.95 - low) * np.exp(-5 * np.arange(count) / count))


def test_a_single_bad_epoch_is_no_divergence() -> None:
    train, val = smooth(), smooth(low=0.15)
    train[12] = math.nan
    assert judge(train, val).kind == "healthy"
    val[20] = math.inf
    assert judge(train, val).kind == "healthy"


def test_nan_at_the_end_or_often_is_a_divergence() -> None:
    train = smooth()
    train[-1] = math.nan
    assert judge(train, smooth()) == CurveVerdict("diverged", began=30)
    train = smooth()
    train[[4, 9, 15]] = math.nan
    assert judge(train, smooth()).began == 5
    val = smooth()
    val[25:] = math.inf
    assert judge(smooth(), val) == CurveVerdict("diverged", began=26)
    assert judge([2.3, math.nan], [2.3, math.nan]) == CurveVerdict("diverged", began=2)


def test_validation_far_above_its_start_is_overfitting_where_training_learns() -> None:
    """163 pictures, 100 epochs: training went from 1.4 to 0.07, validation from 1.4 to 2.7."""
    epoch = np.arange(100)
    train, chance = 0.05 + 1.37 * np.exp(-((epoch / 40) ** 2)), math.log(4)
    val = 1.25 + 1.45 * (1 - np.exp(-np.maximum(epoch - 10, 0) / 30))
    assert judge(train, val, loss_at_chance=chance).kind == "overfitting"
    accuracy = {"train_accuracy": list(np.linspace(0.3, 0.99, 100)), "val_accuracy": list(np.linspace(0.27, 0.41, 100))}
    verdict = judge(train, val, loss_at_chance=chance, **accuracy)
    assert (verdict.kind, verdict.is_severe) == ("overfitting", True)
    assert judge(train, 20 * val, loss_at_chance=chance).kind == "overfitting", "however far"


def test_validation_far_above_its_start_is_lost_where_training_learns_nothing() -> None:
    val = np.concatenate([np.full(10, CHANCE), np.full(20, 5 * CHANCE)])
    verdict = judge(np.full(30, CHANCE), val)
    assert (verdict.kind, verdict.began, verdict.is_of_validation) == ("diverged", 11, True)


def test_a_spike_that_is_got_over_is_nothing() -> None:
    train, val = smooth(40), smooth(40, low=0.15)
    train[20:22] *= 4
    val[20:22] *= 4
    assert judge(train, val).kind in ("healthy", "not enough data")


def test_flat_from_the_first_epoch_on() -> None:
    flat = np.full(20, CHANCE)
    verdict = judge(flat, flat)
    assert (verdict.kind, verdict.began) == ("plateaued", 1)
    assert verdict.level == pytest.approx(1.0)


def test_without_the_number_of_classes_high_is_not_known() -> None:
    """A fine-tuned model may begin where it ends."""
    flat = np.full(20, 0.3)
    assert judge(flat, flat + 0.02, loss_at_chance=None).kind == "not enough data"
    assert judge(smooth(), smooth(low=0.15), loss_at_chance=None).kind == "healthy"


def test_losses_at_zero_are_learnt() -> None:
    nothing = np.zeros(20)
    assert judge(nothing, nothing).kind == "healthy"
    assert judge(nothing, nothing, loss_at_chance=None).kind == "healthy"
    wiggles = np.abs(np.random.default_rng(0).standard_normal(40)) * 1e-4
    assert judge(wiggles, wiggles * 3).kind == "healthy"


def test_a_rise_next_to_zero_is_nothing() -> None:
    val = np.concatenate([smooth(20, low=0.012), np.linspace(0.03, 0.05, 20)])
    assert judge(smooth(40, low=0.001), val).kind == "healthy"


def test_evaluated_every_fifth_epoch() -> None:
    made = list(overfitting(60))[3]
    val = [loss if epoch % 5 == 4 else None for epoch, loss in enumerate(made.val)]
    verdict = judge(made.train, val)
    assert verdict.kind == "overfitting"
    assert made.began is not None
    assert abs((verdict.began or 0) - made.began) <= 10
    only_three = [loss if epoch in (20, 40, 59) else None for epoch, loss in enumerate(made.val)]
    assert judge(made.train, only_three).kind == "not enough data"
    swung = next(oscillating(60))
    assert judge(swung.train, [None] * 60).kind == "oscillating", "training alone shows that"


def test_a_gap_between_accuracies_is_overfitting_without_a_rise() -> None:
    train, val = smooth(40, low=0.01), smooth(40, low=0.25)
    accuracy = {"train_accuracy": [0.99] * 40, "val_accuracy": [0.8] * 40}
    verdict = judge(train, val, **accuracy)
    assert (verdict.kind, verdict.is_severe, verdict.is_rising) == ("overfitting", True, False)
    assert verdict.gap == pytest.approx(0.19)
    accuracy["val_accuracy"] = [0.9] * 40
    assert judge(train, val, **accuracy).kind == "healthy"
    accuracy["val_accuracy"] = [None] * 40  # pyright: ignore
    assert judge(train, val, **accuracy).kind == "healthy"


def test_a_rising_loss_with_a_rising_accuracy_is_overconfidence() -> None:
    made = next(overfitting(40))
    better = list(np.linspace(0.5, 0.8, 40))
    verdict = judge(made.train, made.val, train_accuracy=better, val_accuracy=better)
    assert verdict.kind == "healthy"
    assert verdict.is_overconfident
    worse = [*np.linspace(0.5, 0.7, 20), *np.linspace(0.7, 0.65, 20)]
    assert judge(made.train, made.val, train_accuracy=better, val_accuracy=worse).kind == "overfitting"


def test_both_losses_rising_is_not_overfitting() -> None:
    val = np.concatenate([smooth(20), np.linspace(0.3, 0.9, 20)])
    assert judge(val * 0.9, val).kind != "overfitting"


def test_still_falling_is_told() -> None:
    slow = CHANCE * np.exp(-np.arange(20) / 60)
    verdict = judge(slow, slow * 1.02)
    assert (verdict.kind, verdict.is_falling, verdict.began) == ("underfitting", True, None)
    assert not judge(np.full(20, CHANCE), np.full(20, CHANCE)).is_falling


def test_swings_beyond_what_steps_explain_need_no_period() -> None:
    """The spread of the steps says how far an epoch's mean is off by chance; what is far beyond is the model's."""
    rng = np.random.default_rng(3)
    train = smooth(24, low=0.3) * np.exp(0.25 * rng.standard_normal(24))
    assert judge(train, smooth(24, low=0.35)).kind == "not enough data"
    assert judge(train, smooth(24, low=0.35), train_error=0.2).kind == "healthy"
    verdict = judge(train, smooth(24, low=0.35), train_error=0.02)
    assert verdict.kind == "oscillating"
    assert verdict.swing > 0.2
