"""Whether the first steps, at the full rate at once, push the weights to where they do not come back from."""

from __future__ import annotations

from vitscope.doctor.checks.training.held_picture import picture_of, plain
from vitscope.doctor.experiments.held import Run, hold, own_run, pool_of
from vitscope.doctor.experiments.lr_test import way_of
from vitscope.doctor.finding import Change, Finding, Seen
from vitscope.doctor.patient import Patient
from vitscope.doctor.thresholds import COLD_ENOUGH, COLD_LOST, FEW_WARM_UP_STEPS, HELD_STEPS, LONG_RISE


def warm_up(patient: Patient) -> Seen:
    """Only where it is known that there is none: what is not known is not blamed."""
    if patient.make_trainer is None:
        return Seen(left_out="no_optimizer")
    steps = patient.facts.warmup_steps
    if steps is None:
        return Seen(left_out="warm_up_not_known")
    if steps > FEW_WARM_UP_STEPS:
        return Seen(measured={"warmup_steps": steps})
    pool = pool_of(patient)
    usual = own_run(patient)
    cold = hold(patient, pool, None, steps=HELD_STEPS, warm_up=0.0, is_enough=_falls)
    measured = {"warmup_steps": steps, "start": plain(cold.start), "cold": plain(cold.end)}
    if _falls(cold) or (way_of(cold) == "falls" and cold.fall >= COLD_LOST * usual.fall):
        return Seen(measured=measured)
    # A short rise may be too short to help: twice the steps, most of them rising, beside as many without.
    cold = hold(patient, pool, None, steps=2 * HELD_STEPS, warm_up=0.0, is_enough=_falls)
    warm = hold(patient, pool, None, steps=2 * HELD_STEPS, warm_up=LONG_RISE)
    measured |= {"cold": plain(cold.end), "warm": plain(warm.end)}
    picture = picture_of([cold, warm], names=("no warm-up", "with warm-up"), title="With and without a warm-up")
    seen = Seen(measured=measured, picture=picture)
    if way_of(warm) == "falls" and cold.fall < COLD_LOST * warm.fall:
        changes = (Change("schedule.warmup", "10 %"),) if patient.settings is not None else ()
        numbers = {"lr": cold.lr, "cold": cold.end, "warm": warm.end, "start": cold.start, "steps": 2 * HELD_STEPS}
        seen.findings.append(Finding("warmup_missing", 0.88, numbers, changes, picture))
    return seen


def _falls(run: Run) -> bool:
    return way_of(run) == "falls" and run.fall > COLD_ENOUGH * abs(run.start)
