"""A short run with everything as it is; where it does not learn as it should, suspects are switched off one by one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from vitscope.doctor.checks.training.held_picture import picture_of, plain
from vitscope.doctor.experiments.held import HeldRun, pool_of, trainer_of
from vitscope.doctor.experiments.lr_test import is_better, way_of
from vitscope.doctor.experiments.short_run import grad_norm_of, largest_dropout, run_with
from vitscope.doctor.experiments.validation import Looked, validation_of
from vitscope.doctor.finding import Change, Finding, Note, Seen
from vitscope.doctor.patient import Pair, Patient
from vitscope.doctor.thresholds.training import (
    CLIPPED_AWAY,
    HALF_LIFE_STEPS,
    LOW_LOSS,
    REPAIRED,
    SHORT_RUN_FALL,
    SHORT_RUN_STEPS,
    SUSPECT_DECAY,
    SUSPECT_DROPOUT,
)

Suspect = Callable[[Patient, list[Pair], HeldRun], Finding | Note | None]

TRIED_RATES = (0.1, 0.01, 10.0, 100.0)
"""Times the patient's own."""


def short_run(patient: Patient) -> Seen:
    """Learns at all, and as it would without what is meant to hold it back?"""
    if patient.make_trainer is None:
        return Seen(left_out="no_optimizer")
    pool = pool_of(patient)
    own, looked = _watched(patient, pool)
    measured = {"start": plain(own.start), "end": plain(own.end), "way": way_of(own), "steps": len(own.losses)}
    for when, one in zip(("before", "after"), looked, strict=False):
        measured |= {f"val_loss_{when}": plain(one.loss), f"val_accuracy_{when}": one.accuracy}
    seen = Seen(measured=measured, picture=picture_of([own], names=["loss"], title="A short run"))
    suspects: tuple[Suspect, ...] = (_weight_decay, _dropout, _clipping)
    for suspect in suspects:
        one = suspect(patient, pool, own)
        seen.findings += [one] if isinstance(one, Finding) else []
        seen.notes += [one] if isinstance(one, Note) else []
    if not seen.findings and _is_stuck(own):
        seen.findings += _last_resort(patient, pool, own)
    return seen


def _watched(patient: Patient, pool: list[Pair]) -> tuple[HeldRun, list[Looked]]:
    """The run, and what the model says of validation pictures before and after it, where there are any."""
    if patient.val is None:
        return run_with(patient, pool, is_enough=_is_enough), []
    looked = [validation_of(patient)]
    run = run_with(patient, pool, is_enough=_is_enough, at_end=lambda: looked.append(validation_of(patient)))
    return run, looked


def _last_resort(patient: Patient, pool: list[Pair], own: HeldRun) -> list[Finding]:
    """A learning rate that works means the learning rate is it, and its own check says so."""
    if not own.lr > 0:
        return []
    for times in TRIED_RATES:
        if not _is_stuck(run_with(patient, pool, lr=own.lr * times)):
            return []
    numbers = {
        "steps": len(own.losses),
        "pictures": sum(len(images) for images, _ in pool),
        "start": own.start,
        "end": own.end,
        "lowest": min(TRIED_RATES) * own.lr,
        "highest": max(TRIED_RATES) * own.lr,
    }
    return [Finding("does_not_learn", 0.6, numbers)]


def _weight_decay(patient: Patient, pool: list[Pair], own: HeldRun) -> Finding | None:
    """What it does by itself is known from the weights it pulls on: how fast they shrink, beside a run without it."""
    trainer = trainer_of(patient)
    if trainer.weight_decay < SUSPECT_DECAY or not own.lr > 0:
        return None
    without = run_with(patient, pool, decay=False, steps=_as_long(own))
    half_life = math.log(2) / (trainer.weight_decay * own.lr)
    is_repaired = _repairs(own, without)
    if not is_repaired and half_life > HALF_LIFE_STEPS:
        return None
    proposal = 0.05 if trainer.optimizer_name in ("adamw", "muon") else 1e-4
    numbers = {"weight_decay": trainer.weight_decay, "half_life": half_life, "proposal": proposal}
    changes = (Change("optim.weight_decay", proposal),)
    return _finding(patient, "weight_decay_too_high", 0.92 if is_repaired else 0.75, own, without, numbers, changes)


def _dropout(patient: Patient, pool: list[Pair], own: HeldRun) -> Finding | None:
    rate = largest_dropout(patient)
    if rate < SUSPECT_DROPOUT:
        return None
    without = run_with(patient, pool, drops=False, steps=_as_long(own))
    if not _repairs(own, without):
        return None
    return _finding(
        patient, "dropout_too_high", 0.9, own, without, {"drop_rate": rate}, (Change("model.drop_rate", 0.1),)
    )


def _clipping(patient: Patient, pool: list[Pair], own: HeldRun) -> Finding | Note | None:
    """Adam hardly feels it: a finding only where the run without it learns clearly more."""
    clip = patient.facts.clip_norm
    if clip is None:
        return None
    norm = grad_norm_of(patient, pool)
    if not norm > 0 or clip / norm > CLIPPED_AWAY:
        return None
    without = run_with(patient, pool, clip=False, steps=_as_long(own))
    numbers = {"clip_norm": clip, "grad_norm": norm}
    if not _repairs(own, without):
        return Note("clip_small", numbers)
    return _finding(patient, "clip_too_small", 0.92, own, without, numbers, (Change("optim.clip_norm", 1.0),))


def _finding(
    patient: Patient,
    cause: str,
    confidence: float,
    own: HeldRun,
    without: HeldRun,
    numbers: dict[str, Any],
    changes: tuple[Change, ...],
) -> Finding:
    shared = {"lr": own.lr, "start": own.start, "end": own.end, "better_end": without.end, "steps": _as_long(own)}
    picture = picture_of([own, without], names=("as it is", "without"), title="With and without it")
    return Finding(cause, confidence, {**shared, **numbers}, changes if patient.settings is not None else (), picture)


def _repairs(own: HeldRun, without: HeldRun) -> bool:
    """Whether it comes down much further without, by more than noise, and did not do well as it was."""
    is_well = own.end < LOW_LOSS * own.start
    return not is_well and is_better(without, own) and own.fall < REPAIRED * without.fall


def _is_enough(run: HeldRun) -> bool:
    """Down so far that nothing holds it back."""
    return len(run.losses) >= SHORT_RUN_STEPS // 2 and run.fall > SHORT_RUN_FALL * run.start


def _as_long(own: HeldRun) -> int:
    """Runs are compared after as many steps; one that was lost ended for want of anything to see."""
    return SHORT_RUN_STEPS if own.is_lost else len(own.losses)


def _is_stuck(run: HeldRun) -> bool:
    return way_of(run) in ("crawls", "diverges")
