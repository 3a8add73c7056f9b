"""The verdict on a learning curve, by trends that stand out of the curve's own noise, never by one point."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from vitscope.core.run_view import RunView
from vitscope.doctor.thresholds import (
    CURVE_FEWEST,
    CURVE_GAP,
    CURVE_HIGH,
    CURVE_LOST,
    CURVE_RISE,
    CURVE_SEVERE,
    CURVE_STUCK,
    CURVE_SURE,
    CURVE_SWING,
    CURVE_SWING_OF_START,
    CURVE_UNSEEN,
)
from vitscope.doctor.trend import change, noise_of, slope_of, smoothed

Kind = Literal["overfitting", "underfitting", "healthy", "oscillating", "diverged", "plateaued", "not enough data"]


@dataclass(frozen=True)
class Curve:
    """One number an epoch (or an evaluation); accuracies may be missing, losses must not."""

    epochs: Sequence[float]
    train_loss: Sequence[float]
    val_loss: Sequence[float]
    train_accuracy: Sequence[float] = ()
    val_accuracy: Sequence[float] = ()
    loss_at_chance: float | None = None
    """ln(classes), where the number of classes is known."""


@dataclass(frozen=True)
class CurveVerdict:
    kind: Kind
    began: float | None = None
    """The epoch where it began, of what can begin."""
    best: float | None = None
    """The epoch of the lowest validation loss, smoothed: where early stopping would have ended."""
    is_severe: bool = False
    is_rising: bool = False
    """Whether the validation loss itself rises; otherwise overfitting shows in the gap alone."""
    is_falling: bool = False
    """Whether the losses were still coming down at the end: more epochs would help."""
    rise: float = 0.0
    """Of the validation loss since its best, smoothed."""
    gap: float | None = None
    """Training accuracy less validation accuracy, at the end."""
    noise: float = 0.0
    """Of the validation loss, from one epoch to the next."""
    level: float = math.nan
    """The lower of the two losses at the end, as a share of the loss at chance (or at the start)."""


def curve_of(run: RunView) -> Curve:
    """The evaluations of a run that have both losses, as they stand."""
    rows: list[dict[str, float]] = []
    for row in run.rows:
        if "val/loss" in row and "train/epoch_loss" in row:
            while rows and rows[-1]["step"] >= row["step"]:
                rows.pop()  # training went back, and has taken these steps anew
            rows.append(row)
    columns = {
        name: [float(row[key]) for row in rows if isinstance(row.get(key), int | float)]
        for name, key in (("train_accuracy", "train/epoch_accuracy"), ("val_accuracy", "val/accuracy"))
    }
    return Curve(
        [float(row["epoch"]) for row in rows],
        [float(row["train/epoch_loss"]) for row in rows],
        [float(row["val/loss"]) for row in rows],
        **{name: values for name, values in columns.items() if len(values) == len(rows)},
        loss_at_chance=_chance(run),
    )


def judge_curve(curve: Curve) -> CurveVerdict:
    """In the order of certainty: what is lost, what swings, what overfits, what does not learn; else healthy."""
    train, val = list(curve.train_loss), list(curve.val_loss)
    lost = _lost_at(train, curve.loss_at_chance)
    if lost is not None:
        return CurveVerdict("diverged", began=curve.epochs[lost])
    pairs = [(x, y, e) for x, y, e in zip(train, val, curve.epochs, strict=True) if math.isfinite(x + y)]
    if len(pairs) < CURVE_FEWEST:
        return CurveVerdict("not enough data")
    train, val = [x for x, _, _ in pairs], [y for _, y, _ in pairs]
    epochs = [e for _, _, e in pairs]
    best = min(range(len(val)), key=smoothed(val).__getitem__)
    facts = _Facts(curve, train, val, epochs, best)
    return (
        _oscillating(facts) or _overfitting(facts) or _unclear(facts) or _not_learning(facts) or facts.said("healthy")
    )


class _Facts:
    """What all the rules read."""

    def __init__(self, curve: Curve, train: list[float], val: list[float], epochs: list[float], best: int) -> None:
        self.curve, self.train, self.val, self.epochs, self.best = curve, train, val, epochs, best
        self.tail = max(3, len(val) // 4)
        self.noise, self.train_noise = noise_of(val), noise_of(train)
        self.rise, self.rise_error = change(val, best, self.tail, self.noise)
        self.end = min(statistics.median(train[-self.tail :]), statistics.median(val[-self.tail :]))
        # Chance is where an untrained model stands; the first epoch's mean has much of the learning in it already.
        self.start = curve.loss_at_chance or max(train[0], val[0])
        self.level = self.end / self.start if self.start > 0 else math.nan
        later = len(train) // 2
        self.slope, self.slope_error = slope_of(epochs[later:], train[later:], self.train_noise)
        self.gap = self._gap()

    @property
    def is_falling(self) -> bool:
        """Significantly, and by enough that as many epochs again would show."""
        ahead = -self.slope * (self.epochs[-1] - self.epochs[0]) / 2
        return self.slope < -CURVE_SURE * self.slope_error and ahead > CURVE_RISE * self.end

    def _gap(self) -> float | None:
        curve = self.curve
        if len(curve.train_accuracy) < self.tail or len(curve.val_accuracy) < self.tail:
            return None
        ends = [statistics.median(list(one)[-self.tail :]) for one in (curve.train_accuracy, curve.val_accuracy)]
        return ends[0] - ends[1]

    def said(self, kind: Kind, *, began: int | None = None, severe: bool = False, rising: bool = False) -> CurveVerdict:
        return CurveVerdict(
            kind,
            began=None if began is None else self.epochs[began],
            best=self.epochs[self.best],
            is_severe=severe,
            is_rising=rising,
            is_falling=self.is_falling,
            rise=self.rise,
            gap=self.gap,
            noise=self.noise,
            level=self.level,
        )


def _lost_at(train: list[float], chance: float | None) -> int | None:
    """Not finite at the end or for long, or far above where it began and staying there."""
    bad = [at for at, loss in enumerate(train) if not math.isfinite(loss)]
    if bad and (bad[-1] == len(train) - 1 or len(bad) >= 3):
        return bad[0]
    finite = [loss for loss in train if math.isfinite(loss)]
    if len(finite) < 4:
        return None
    limit = CURVE_LOST * max(finite[0], chance or 0.0)
    if all(loss > limit for loss in finite[-3:]):
        return next(at for at in range(len(train)) if all(loss > limit for loss in train[at:]))
    return None


def _oscillating(facts: _Facts) -> CurveVerdict | None:
    """A mean over an epoch's steps does not jump by chance: where it does, training itself swings."""
    if facts.train_noise < max(CURVE_SWING * statistics.median(facts.train), CURVE_SWING_OF_START * facts.start):
        return None
    off = [abs(a - b) for a, b in zip(facts.train, smoothed(facts.train), strict=True)]
    began = next((at for at, one in enumerate(off) if one > facts.train_noise), 0)
    return facts.said("oscillating", began=began)


def _overfitting(facts: _Facts) -> CurveVerdict | None:
    """Validation rises and training does not; or training is nearly perfect and validation far from it."""
    after = len(facts.val) - 1 - facts.best
    gap = facts.gap or 0.0
    if after >= 4 and facts.rise > max(CURVE_SURE * facts.rise_error, CURVE_RISE * facts.val[facts.best]):
        slope, error = slope_of(facts.epochs[facts.best + 1 :], facts.val[facts.best + 1 :], facts.noise)
        if slope > 2 * error and _fell_since(facts):
            severe = facts.rise > CURVE_SEVERE * facts.val[facts.best] or gap > CURVE_GAP
            return facts.said("overfitting", began=facts.best, severe=severe, rising=True)
    ends = statistics.median(facts.train[-facts.tail :]), statistics.median(facts.val[-facts.tail :])
    if gap > CURVE_GAP and ends[0] < 0.5 * ends[1] and ends[1] - ends[0] > CURVE_SURE * facts.noise:
        apart = [b - a for a, b in zip(smoothed(facts.train), smoothed(facts.val), strict=True)]
        began = next(at for at, one in enumerate(apart) if one > 0.5 * (ends[1] - ends[0]))
        return facts.said("overfitting", began=began, severe=True)
    return None


def _fell_since(facts: _Facts) -> bool:
    """Training, since validation was best: by more than noise, where there was anything left to fall."""
    then, now = (statistics.median(part) for part in (facts.train[max(0, facts.best - 1) :][:3], facts.train[-3:]))
    return then - now > 2 * facts.train_noise or now < 0.1 * facts.start


def _unclear(facts: _Facts) -> CurveVerdict | None:
    """Noise that could hide a rise worth acting on: nothing is said rather than something wrong."""
    unseen = 2 * facts.rise_error > CURVE_UNSEEN * max(facts.val[facts.best], 0.2 * facts.start)
    level_error = 2 * max(facts.noise, facts.train_noise) / math.sqrt(facts.tail) / facts.start
    near = abs(facts.level - CURVE_HIGH) < level_error
    return facts.said("not enough data") if unseen or near else None


def _not_learning(facts: _Facts) -> CurveVerdict | None:
    if not facts.level > CURVE_HIGH:
        return None
    if facts.level > CURVE_STUCK and not facts.is_falling:
        return facts.said("plateaued", began=_flat_from(facts.train, facts.train_noise))
    return facts.said("underfitting", began=None if facts.is_falling else _flat_from(facts.train, facts.train_noise))


def _flat_from(values: list[float], noise: float) -> int:
    """The first epoch after which nothing came further down than noise does."""
    calm = smoothed(values)
    floor = min(calm) + max(2 * noise, 0.02 * abs(min(calm)))
    return next(at for at, one in enumerate(calm) if one <= floor)


def _chance(run: RunView) -> float | None:
    model = (run.config or {}).get("model")
    fields = [model] + [part for part in model.values() if isinstance(part, dict)] if isinstance(model, dict) else []
    classes = next((one["num_classes"] for one in fields if isinstance(one.get("num_classes"), int)), None)
    return math.log(classes) if classes is not None and classes > 1 else None
