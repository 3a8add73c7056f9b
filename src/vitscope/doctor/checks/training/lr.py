"""The learning rate: too high, too low, or not warmed up to, by short runs that hold it."""

from __future__ import annotations

import math

from vitscope.doctor.experiments.held import Run, hold, pool_of
from vitscope.doctor.experiments.lr_test import LrTest, add, find_edge, held_at, is_too_high, way_of
from vitscope.doctor.finding import Change, Finding, Seen
from vitscope.doctor.patient import Pair, Patient
from vitscope.doctor.picture import Line, Picture
from vitscope.doctor.thresholds import (
    COLD_LOST,
    CRAWL,
    FEW_WARM_UP_STEPS,
    HELD_STEPS,
    LR_TOO_LOW_FALL,
    LR_TOO_LOW_RATIO,
    UPDATE_TOO_LARGE,
)


def first_steps(patient: Patient) -> Seen:
    """The patient's own rate alone; others are tried only where it looks wrong."""
    if patient.make_trainer is None:
        return Seen(left_out="no_optimizer")
    pool = pool_of(patient)
    run = hold(patient, pool, None, steps=HELD_STEPS)
    way = way_of(run)
    if way == "falls" and not run.move > UPDATE_TOO_LARGE:
        return Seen(measured=_measured(run))
    test = LrTest(run.lr, {run.lr: run})
    return _judged(patient, test, pool, look_up=way == "crawls")


def lr_test(patient: Patient) -> Seen:
    """Own rate, a tenth of it, and a hundred times it."""
    if patient.make_trainer is None:
        return Seen(left_out="no_optimizer")
    pool = pool_of(patient)
    test = held_at(patient, pool, ())
    add(test, patient, pool, test.own)
    return _judged(patient, test, pool, look_up=True)


def warm_up(patient: Patient) -> Seen:
    """Only where it is known that there is none: what is not known is not blamed."""
    if patient.make_trainer is None:
        return Seen(left_out="no_optimizer")
    if patient.facts.warmup_steps is None:
        return Seen(left_out="warm_up_not_known")
    if patient.facts.warmup_steps > FEW_WARM_UP_STEPS:
        return Seen(measured={"warmup_steps": patient.facts.warmup_steps})
    pool = pool_of(patient)
    cold = hold(patient, pool, None, steps=2 * HELD_STEPS, warm_up=0.0)
    measured = {"cold": cold.end, "start": cold.losses[0]}
    if way_of(cold) == "falls" and cold.losses[0] - cold.end > 0.5 * cold.losses[0]:
        return Seen(measured=measured)
    warm = hold(patient, pool, None, steps=2 * HELD_STEPS, warm_up=0.7)
    measured["warm"] = warm.end
    start = cold.losses[0]
    seen = Seen(measured=measured, picture=_picture([cold, warm], labels=("no warm-up", "with warm-up")))
    if way_of(warm) == "falls" and start - cold.end < COLD_LOST * (start - warm.end):
        changes = (Change("schedule.warmup", "10 %"),) if patient.settings is not None else ()
        numbers = {"lr": cold.lr, "cold": cold.end, "warm": warm.end, "start": start, "steps": 2 * HELD_STEPS}
        seen.findings.append(Finding("warmup_missing", 0.8, numbers, changes, seen.picture))
    return seen


def _judged(patient: Patient, test: LrTest, pool: list[Pair], *, look_up: bool) -> Seen:
    own = test.runs[test.own]
    lower = add(test, patient, pool, test.own / 10)
    finding: Finding | None = None
    # Where a tenth is lost too, a hundredth may not be.
    if way_of(own) == "diverges" or way_of(lower) == "diverges" or is_too_high(own, lower):
        find_edge(test, patient, pool, bad=test.own)
        finding = _too_high(patient, test)
    elif look_up and own.fall < 0.5 * own.start:
        higher = add(test, patient, pool, test.own * LR_TOO_LOW_RATIO)
        if way_of(higher) == "falls" and own.fall < LR_TOO_LOW_FALL * higher.fall:
            finding = _too_low(patient, test, pool, higher)
    picture = _picture(test.in_order(), labels=None)
    measured = {**_measured(own), "edge": test.edge, "proposal": test.proposal}
    measured["runs"] = {f"{run.lr:.2g}": {"end": _plain(run.end), "way": way_of(run)} for run in test.in_order()}
    return Seen(measured=measured, findings=[finding] if finding is not None else [], picture=picture)


def _too_high(patient: Patient, test: LrTest) -> Finding | None:
    """Without a rate that works nothing is known: then it is not the rate."""
    if test.proposal is None:
        return None
    own, better = test.runs[test.own], test.runs[test.proposal]
    is_lost = way_of(own) == "diverges"
    is_clear = is_lost or better.end < own.end - CRAWL * own.start
    confidence = 0.95 if is_lost else 0.85 if is_clear else 0.6
    return Finding(
        "lr_too_high",
        confidence,
        {
            "lr": test.own,
            "end": own.end,
            "start": own.start,
            "move": own.move * 100,
            "way": way_of(own),
            "edge": test.edge,
            "proposal": test.proposal,
            "better_end": better.end,
            "times": test.own / test.proposal,
        },
        _changes(patient, test.proposal, test.own),
        _picture(test.in_order(), labels=None),
    )


def _too_low(patient: Patient, test: LrTest, pool: list[Pair], higher: Run) -> Finding:
    between = add(test, patient, pool, test.own * 30)
    best = between if between.end < higher.end + CRAWL * higher.start else higher
    test.proposal = float(f"{best.lr:.0e}")
    own = test.runs[test.own]
    return Finding(
        "lr_too_low",
        0.85,
        {
            "lr": test.own,
            "start": own.start,
            "end": own.end,
            "move": own.move * 100,
            "proposal": test.proposal,
            "better_end": best.end,
            "times": test.proposal / test.own,
        },
        _changes(patient, test.proposal, test.own),
        _picture(test.in_order(), labels=None),
    )


def _changes(patient: Patient, lr: float, own: float) -> tuple[Change, ...]:
    """`optim.lr` is before scaling with the batch."""
    if patient.settings is None:
        return ()
    return (Change("optim.lr", float(f"{lr * patient.settings.optim.lr / own:.1e}")),)


def _measured(run: Run) -> dict[str, object]:
    return {
        "lr": run.lr,
        "start": _plain(run.start),
        "end": _plain(run.end),
        "way": way_of(run),
        "update_to_weight": _plain(run.move),
    }


def _plain(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _picture(runs: list[Run], *, labels: tuple[str, ...] | None) -> Picture:
    names = labels or tuple(f"lr {run.lr:.2g}" for run in runs)
    lines = [
        Line(name, list(range(len(run.losses))), [_plain(loss) or math.nan for loss in run.losses])
        for name, run in zip(names, runs, strict=True)
    ]
    return Picture("Loss at held learning rates", "step", "loss", lines, log_y=True)
