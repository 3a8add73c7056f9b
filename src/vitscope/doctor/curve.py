"""The verdict on a learning curve, by trends that stand out of the curve's own noise, never by one point."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from vitscope.doctor.curve_facts import Facts
from vitscope.doctor.swing import find_swing, is_rough
from vitscope.doctor.thresholds.curves import (
    CURVE_CLIMB,
    CURVE_CLIMBED_TO,
    CURVE_FEWEST,
    CURVE_GAP,
    CURVE_HIGH,
    CURVE_LATE,
    CURVE_LEARNT,
    CURVE_LOST,
    CURVE_RISE,
    CURVE_SEEMS,
    CURVE_SEVERE,
    CURVE_STUCK,
    CURVE_UNSEEN,
    CURVE_WIDE_GAP,
)
from vitscope.doctor.trend import bend, change, noise_of, smoothed, usual_noise

Kind = Literal["overfitting", "underfitting", "healthy", "oscillating", "diverged", "plateaued", "not enough data"]


@dataclass(frozen=True)
class Curve:
    """One number an epoch; None where it was not evaluated. Losses that are not finite are told as they are."""

    epochs: Sequence[float]
    train_loss: Sequence[float]
    val_loss: Sequence[float | None]
    train_accuracy: Sequence[float | None] = ()
    val_accuracy: Sequence[float | None] = ()
    loss_at_chance: float | None = None
    """ln(classes), where the number of classes is known. Without it nobody can say that losses are high."""
    train_error: float | None = None
    """How far an epoch's mean training loss is off by chance, as a share of it, where that is known."""


@dataclass(frozen=True)
class CurveVerdict:
    kind: Kind
    began: float | None = None
    """The epoch where it began, of what can begin."""
    best: float | None = None
    """The epoch where validation turned from falling to rising, or the last: where early stopping would have ended."""
    is_severe: bool = False
    is_of_validation: bool = False
    """Whether it is the validation loss that diverged, and training merely learnt nothing."""
    is_rising: bool = False
    """Whether the validation loss itself rises; otherwise overfitting shows in the gap alone."""
    is_falling: bool = False
    """Whether both losses came down in the later half."""
    has_learnt: bool = False
    """Whether training came down over the whole curve, of a curve that ended high."""
    falls_at_end: bool = False
    """Whether validation did so to the end, beyond its noise: more epochs may help."""
    is_overconfident: bool = False
    """Whether validation loss rises while accuracy rises too: answers get surer faster than better."""
    rise: float = 0.0
    """Of the validation loss since its best, as a share of it."""
    gap: float | None = None
    """Training accuracy less validation accuracy, at the end."""
    noise: float = 0.0
    """Of the validation loss, from one evaluation to the next, as a share of it."""
    level: float = math.nan
    """The lower of the two losses at the end, as a share of the loss at chance (or at the start)."""
    swing: float = 0.0
    """Half the way from top to bottom of an oscillation, as a share of the training loss."""


def judge_curve(curve: Curve) -> CurveVerdict:
    """In the order of certainty: what is lost, what swings, what overfits, what does not learn; else healthy."""
    lost = _lost_at(curve.epochs, curve.train_loss, curve) or _not_finite_from(_evaluated(curve))
    if lost is not None:
        return CurveVerdict("diverged", began=lost)
    facts = Facts(curve)
    # Far above the start while training learns is overfitting: that is for its own rule.
    lost = None if facts.train_end < CURVE_LEARNT * facts.start else _lost_at(curve.epochs, curve.val_loss, curve)
    if lost is not None:
        return CurveVerdict("diverged", began=lost, is_of_validation=True)
    if len(facts.train) < CURVE_FEWEST:
        return CurveVerdict("not enough data")
    swung = _oscillating(facts) or _climbed(facts)
    if swung is not None:
        return swung
    if len(facts.val) < CURVE_FEWEST:
        return CurveVerdict("not enough data")
    for rule in (_overfitting, _unclear, _not_learning, _perhaps_rising):
        verdict = rule(facts)
        if verdict is not None:
            return verdict
    return _said(facts, "healthy")


def _said(
    facts: Facts, kind: Kind, *, began: float | None = None, best: float | None = None, **more: Any
) -> CurveVerdict:
    if len(facts.val) < CURVE_FEWEST:
        return CurveVerdict(kind, began=began, **more)
    return CurveVerdict(
        kind,
        began=began,
        best=facts.val_epochs[facts.best] if best is None else best,
        is_falling=facts.is_falling,
        falls_at_end=facts.falls_at_end,
        is_overconfident=facts.is_overconfident,
        rise=math.expm1(facts.rise),
        gap=facts.gap,
        noise=facts.noise,
        level=facts.level,
        **more,
    )


def _lost_at(epochs: Sequence[float], given: Sequence[float | None], curve: Curve) -> float | None:
    """The epoch since when it is not finite (at the end, or three times), or far above where it began and staying."""
    seen = [(epoch, loss) for epoch, loss in zip(epochs, given, strict=True) if loss is not None]
    bad_from = _not_finite_from(seen)
    if bad_from is not None:
        return bad_from
    seen = [(epoch, loss) for epoch, loss in seen if math.isfinite(loss)]
    firsts = [loss for loss in (*curve.train_loss[:1], *curve.val_loss[:1]) if loss is not None and math.isfinite(loss)]
    limit = CURVE_LOST * max(curve.loss_at_chance or 0.0, *firsts, *(loss for _, loss in seen[:1]), 0.0)
    if len(seen) < 4 or limit <= 0 or not all(loss > limit for _, loss in seen[-3:]):
        return None
    logs = np.log([max(loss, 1e-9) for _, loss in seen])
    if logs[-3:].mean() - math.log(limit) < 3 * noise_of(logs) / math.sqrt(3):
        return None
    place = len(seen)
    while place and seen[place - 1][1] > limit:
        place -= 1
    return seen[place][0]


def _evaluated(curve: Curve) -> list[tuple[float, float]]:
    return [(epoch, loss) for epoch, loss in zip(curve.epochs, curve.val_loss, strict=True) if loss is not None]


def _not_finite_from(seen: list[tuple[float, float]]) -> float | None:
    """The first such epoch, where the last one is one too, or three are."""
    bad = [epoch for epoch, loss in seen if not math.isfinite(loss)]
    return bad[0] if bad and (not math.isfinite(seen[-1][1]) or len(bad) >= 3) else None


def _oscillating(facts: Facts) -> CurveVerdict | None:
    swing = find_swing(facts.train_scaled, facts.train_error)
    if swing is None:
        return None
    return _said(facts, "oscillating", began=facts.train_epochs[swing.began], swing=swing.size)


def _climbed(facts: Facts) -> CurveVerdict | None:
    """Training itself went back to near where it began, and stayed: what was learnt is lost."""
    low = facts.train_lowest
    after = len(facts.train) - 1 - low
    if after < 3:
        return None
    tail = min(max(3, len(facts.train) // 4), after)
    rise, error = change(facts.train_scaled, low, tail, usual_noise(facts.train_scaled))
    now = statistics.median(facts.train[-tail:])
    then = statistics.median(facts.train[max(0, low - tail // 2) : low + tail // 2 + 1])
    if rise < facts.sure * error or now - then < CURVE_CLIMB * facts.start or now < CURVE_CLIMBED_TO * facts.start:
        return None
    calm = smoothed(facts.train_scaled)
    half = calm[low] + rise / 2
    above = next((at for at in range(len(calm), low, -1) if calm[at - 1] <= half), low + 1)
    if len(calm) - above < 3:
        return None
    edge = calm[low] + max(rise / 8, 2 * facts.train_noise)
    began = next((at for at in range(above, low, -1) if facts.train_scaled[at - 1] <= edge), low + 1)
    return _said(facts, "diverged", began=facts.train_epochs[began])


def _overfitting(facts: Facts) -> CurveVerdict | None:
    """Validation rises and training does not; or training is nearly perfect and validation far from it."""
    gap = facts.gap or 0.0
    if facts.is_rising and not facts.is_overconfident and not facts.has_training_risen:
        severe = facts.rise > CURVE_SEVERE or gap > CURVE_GAP
        began = facts.val_epochs[bend(facts.val_scaled, facts.best)]
        return _said(facts, "overfitting", began=began, best=began, is_severe=severe, is_rising=True)
    train, val = facts.train_end, facts.val_end
    apart = math.log(max(val, 1e-9) / max(train, 1e-9))
    error = math.hypot(facts.noise, facts.train_noise) / math.sqrt(facts.tail)
    is_wide = val * (1 - 2 * error) - train > CURVE_WIDE_GAP * facts.start and train < 0.25 * val
    is_apart = is_wide if facts.gap is None else gap > CURVE_GAP and train < 0.5 * val
    if is_apart and apart > facts.sure * error:
        return _said(facts, "overfitting", began=facts.parted(), is_severe=True)
    return None


def _unclear(facts: Facts) -> CurveVerdict | None:
    """Noise hides how high it ended, or that training swings: nothing is said rather than something wrong."""
    reach = 2 * max(facts.noise, facts.train_noise) / math.sqrt(facts.tail) * facts.level
    is_near = abs(facts.level - CURVE_HIGH) < reach
    # How high a loss is, the number of classes says; without it, only a loss that fell far is known to be low.
    is_unknown = facts.curve.loss_at_chance is None and facts.level > CURVE_HIGH
    if is_near or is_unknown or is_rough(facts.train_scaled, facts.train_error):
        return _said(facts, "not enough data")
    return None


def _not_learning(facts: Facts) -> CurveVerdict | None:
    if not facts.level > CURVE_HIGH:
        return None
    flat_from = None if facts.is_falling else facts.flat_from()
    # Where a schedule ends its rate does too: who fell until then has not been stuck.
    has_ended = facts.has_learnt and flat_from is not None and flat_from > facts.train_epochs[-1] * CURVE_LATE
    is_stuck = facts.level > CURVE_STUCK and flat_from is not None and not has_ended
    kind: Kind = "plateaued" if is_stuck else "underfitting"
    return _said(facts, kind, began=flat_from, has_learnt=facts.has_learnt)


def _perhaps_rising(facts: Facts) -> CurveVerdict | None:
    """Noise could hide a rise, or looks like one."""
    is_hidden = 2 * facts.rise_error > CURVE_UNSEEN
    seems_to_rise = facts.rise > max(CURVE_SEEMS * facts.rise_error, CURVE_RISE) and not facts.is_rising
    return _said(facts, "not enough data") if is_hidden or seems_to_rise else None
