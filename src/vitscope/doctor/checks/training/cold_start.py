"""Whether the first steps, at the full rate at once, push the weights to where they do not come back from."""

from __future__ import annotations

import math

from vitscope.doctor.checks.training.held_picture import picture_of, plain
from vitscope.doctor.experiments.held import HeldRun, hold, own_run, pool_of
from vitscope.doctor.experiments.long_run import beside
from vitscope.doctor.experiments.lr_test import way_of
from vitscope.doctor.finding import Change, Finding, Seen
from vitscope.doctor.patient import Patient
from vitscope.doctor.thresholds.training import (
    COLD_ENOUGH,
    COLD_FIRST_UPDATE,
    COLD_LOST,
    CRAWL,
    FEW_WARM_UP_STEPS,
    HELD_STEPS,
    LONG_RISE,
)

NAMES = ("no warm-up", "with warm-up")
TITLE = "With and without a warm-up"


def warm_up(patient: Patient) -> Seen:
    """Only where it is known that there is none: what is not known is not blamed."""
    if patient.make_trainer is None:
        return Seen(left_out="no_optimizer")
    steps = patient.facts.warmup_steps
    if steps is None:
        return Seen(left_out="warm_up_not_known")
    if steps > FEW_WARM_UP_STEPS:
        return Seen(measured={"warmup_steps": steps})
    usual = own_run(patient)
    cold = hold(patient, pool_of(patient), None, steps=HELD_STEPS, warm_up=0.0, is_enough=_falls)
    first = max(cold.moves[:2], default=math.nan)
    measured = {
        "warmup_steps": steps,
        "start": plain(cold.start),
        "cold": plain(cold.end),
        "first_update": plain(first),
    }
    seen = Seen(measured=measured)
    if not (_falls(cold) or (way_of(cold) == "falls" and cold.fall >= COLD_LOST * usual.fall)):
        _on_few(patient, seen)
    elif first > COLD_FIRST_UPDATE and patient.facts.num_heads is not None:
        _on_fresh(patient, seen, first)
    return seen


def _on_few(patient: Patient, seen: Seen) -> None:
    """A short rise may be too short to help: twice the steps, most of them rising, beside as many without."""
    pool, steps = pool_of(patient), 2 * HELD_STEPS
    cold = hold(patient, pool, None, steps=steps, warm_up=0.0, is_enough=_falls)
    warm = hold(patient, pool, None, steps=steps, warm_up=LONG_RISE)
    seen.measured |= {"cold": plain(cold.end), "warm": plain(warm.end)}
    seen.picture = picture_of([cold, warm], names=NAMES, title=TITLE)
    if way_of(warm) == "falls" and cold.fall < COLD_LOST * warm.fall:
        numbers = {"lr": cold.lr, "cold": cold.end, "warm": warm.end, "start": cold.start, "steps": steps}
        seen.findings.append(Finding("warmup_missing", 0.88, numbers, _changes(patient), seen.picture))


def _on_fresh(patient: Patient, seen: Seen, first: float) -> None:
    """Few pictures are learnt by heart all the same. Batches as they come show more; where neither run has learnt
    anything yet, what the first steps do to the weights is all there is to go by."""
    lr = own_run(patient).lr
    fresh = beside(patient, lr, lr, rises=(0.0, 1.0))
    if fresh is None:
        return
    cold = fresh.runs[0]
    seen.measured |= {"cold": plain(fresh.own), "warm": plain(fresh.other)}
    seen.picture = picture_of(fresh.runs, names=NAMES, title=TITLE)
    has_learnt = cold.start - fresh.own > CRAWL * abs(cold.start)
    if fresh.harm == "helps" or (fresh.harm == "not seen" and has_learnt):
        return
    numbers = {"lr": lr, "cold": fresh.own, "warm": fresh.other, "start": cold.start, "steps": fresh.steps}
    sure = 0.8 if fresh.harm == "harms" else 0.55
    given = {**numbers, "first": first * 100}
    seen.findings.append(Finding("warmup_missing", sure, given, _changes(patient), seen.picture))


def _changes(patient: Patient) -> tuple[Change, ...]:
    return (Change("schedule.warmup", "10 %"),) if patient.settings is not None else ()


def _falls(run: HeldRun) -> bool:
    return way_of(run) == "falls" and run.fall > COLD_ENOUGH * abs(run.start)
