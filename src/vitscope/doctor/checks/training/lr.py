"""The learning rate: too high or too low, by short runs that hold it."""

from __future__ import annotations

import math
from typing import Any

from vitscope.core.config import updated
from vitscope.doctor.anatomy import looks_trained
from vitscope.doctor.before_norm import share_before_batch_norm
from vitscope.doctor.checks.training.held_picture import picture_of, plain
from vitscope.doctor.experiments.held import HeldRun, Known, pool_of, trainer_of
from vitscope.doctor.experiments.long_run import Beside, at_real_batch, beside
from vitscope.doctor.experiments.lr_test import (
    LrTest,
    add,
    at_its_batch,
    find_edge,
    has_large_steps,
    is_better,
    is_too_high,
    is_too_low,
    look_above,
    lr_test_of,
    rounded,
    way_of,
)
from vitscope.doctor.finding import Change, Finding, Note, Seen
from vitscope.doctor.patient import Patient
from vitscope.doctor.thresholds.data import FEW
from vitscope.doctor.thresholds.training import (
    BEFORE_NORM_SHARE,
    LOOK_ABOVE_SECONDS,
    LR_TOO_LOW_RATIO,
    PLAIN_FALL,
    SLOW_UPDATE,
    SLOW_UPDATE_OF_TRAINED,
    USUAL_LR,
    USUAL_LR_OF_SGD,
)


def first_steps(patient: Patient) -> Seen:
    """The patient's own rate alone; others are tried only where it looks wrong."""
    if patient.make_trainer is None:
        return Seen(left_out="no_optimizer")
    test = lr_test_of(patient)
    own = test.runs[test.own]
    if way_of(own) == "falls" and (known := patient.tried["known"]).is_lost:
        return Seen(measured=_measured(own), findings=[_misled(own, known)], picture=picture_of([own]))
    if way_of(own) == "falls" and own.move >= SLOW_UPDATE and not has_large_steps(own):
        return Seen(measured=_measured(own))
    return _judged(patient, test)


def lr_test(patient: Patient) -> Seen:
    """Own rate and a tenth of it; where both are well, how far below the edge it is."""
    if patient.make_trainer is None:
        return Seen(left_out="no_optimizer")
    return _judged(patient, lr_test_of(patient), looks_above=True)


def _judged(patient: Patient, test: LrTest, *, looks_above: bool = False) -> Seen:
    own = test.runs[test.own]
    if not test.own > 0:
        return _seen(test, _at_zero(patient, test))
    lower = add(test, patient, test.own / 10)
    if patient.tried.get("lr_finding") is not None:  # by the first steps: nothing more would be found
        return _seen(test, patient.tried["lr_finding"])
    finding: Finding | None = None
    # Where a tenth is lost too, a hundredth may not be.
    if "diverges" in (way_of(own), way_of(lower)) or is_too_high(own, lower) or has_large_steps(own):
        if (of_its_batch := _of_its_batch(patient, test)) is not None:
            return _seen(test, None, of_its_batch)
        finding = _too_high(patient, test)
    elif own.move < _slow_for(patient):
        higher = add(test, patient, test.own * LR_TOO_LOW_RATIO)
        finding = _too_low(patient, test, higher) if is_too_low(own, higher) else None
    elif looks_above and patient.tried["seconds"] * len(pool_of(patient)[0][0]) * len(own.losses) < LOOK_ABOVE_SECONDS:
        look_above(test, patient)
    patient.tried["lr_finding"] = finding
    seen = _seen(test, finding)
    if finding is None and way_of(own) == "diverges":
        seen.left_out = "no_rate_works"
    return seen


def _of_its_batch(patient: Patient, test: LrTest) -> Note | None:
    """Where the rate is too high with the pool's few pictures, and not with as many as training has. What is lost in a
    few steps is lost with any."""
    if test.runs[test.own].is_lost or _healing_share(patient) is None:
        return None
    run = at_its_batch(test, patient)
    if run is None or way_of(run) != "falls" or has_large_steps(run):
        return None
    numbers = {"lr": test.own, "pictures": len(pool_of(patient)[0][0]), "lower": run.lr}
    return Note("rate_of_its_batch", numbers | {"batch": patient.facts.batch_size})


def _healing_share(patient: Patient) -> float | None:
    """Of the weights, whose steps shrink as they grow; None where that are few, or the optimiser's steps are as long
    whatever the gradient."""
    if "healing" not in patient.tried:
        trainer = trainer_of(patient)
        share = share_before_batch_norm(patient, trainer.moved) if trainer.optimizer_name == "sgd" else 0.0
        patient.tried["healing"] = share if share >= BEFORE_NORM_SHARE else None
    return patient.tried["healing"]


def _slow_for(patient: Patient) -> float:
    """Weights that know something are moved little on purpose."""
    is_trained = patient.facts.is_pretrained or looks_trained(patient.model)
    return SLOW_UPDATE_OF_TRAINED if is_trained else SLOW_UPDATE


def _too_high(patient: Patient, test: LrTest) -> Finding | None:
    """Without a rate that works nothing is known: then it is not the rate."""
    find_edge(test, patient)
    if test.proposal is None:
        return None
    own, better = test.runs[test.own], test.runs[test.proposal]
    is_lost = way_of(own) == "diverges"
    fresh: Beside | None = None
    sure = 0.95 if is_lost else 0.85
    if not is_lost and not is_better(better, own):
        # On a few pictures nothing is lost: batches as they come decide, and where they cannot, the steps' size.
        fresh = beside(patient, test.own, test.proposal)
        if fresh is not None and fresh.harm == "helps":
            return None
        sure = 0.85 if fresh is not None and fresh.harm == "harms" else 0.6
    remeasured = _at_real_batch(patient, test)
    better = add(test, patient, test.proposal)
    numbers = {
        "lr": test.own,
        "end": own.end,
        "start": own.start,
        "way": way_of(own),
        "edge": test.edge,
        "proposal": test.proposal,
        "better_end": better.end,
        "times": test.own / test.proposal,
        **remeasured,
    }
    numbers |= {"lost_after": len(own.losses)} if own.is_lost else {"move": own.move * 100}
    if fresh is not None and fresh.harm == "harms":
        numbers |= {"fresh_steps": fresh.steps, "fresh_own": fresh.own, "fresh_better": fresh.other}
    # Healing takes some hundred steps, which no examination has: what learns all the same may be well by then.
    if own.fall > PLAIN_FALL * abs(own.start) and (share := _healing_share(patient)) is not None:
        sure, numbers = 0.45, numbers | {"before_norm": share}
    if own.collects and not own.is_lost:
        sure = min(sure, 0.45)
    changes = _changes(patient, test.proposal)
    return Finding("lr_too_high", sure, numbers, changes, picture_of(test.in_order()))


def _too_low(patient: Patient, test: LrTest, higher: HeldRun) -> Finding | None:
    """Few pictures are learnt by heart at rates that training does not bear: there batches as they come must agree."""
    between = add(test, patient, test.own * 30)
    best = higher if is_better(higher, between) else between
    sure = 0.85
    if sum(len(images) for images, _ in pool_of(patient)) < FEW:
        fresh = beside(patient, test.own, best.lr)
        if fresh is None or fresh.harm != "harms":
            return None
        sure = 0.45
    test.proposal = rounded(best.lr)
    own = test.runs[test.own]
    remeasured = _at_real_batch(patient, test)
    numbers = {
        "lr": test.own,
        "start": own.start,
        "end": own.end,
        "move": own.move * 100,
        "proposal": test.proposal,
        "better_end": best.end,
        **remeasured,
    }
    changes = _changes(patient, test.proposal)
    return Finding("lr_too_low", sure, numbers, changes, picture_of(test.in_order()))


def _misled(own: HeldRun, known: Known) -> Finding:
    """What the loss calls better is worse by the labels."""
    numbers = {"steps": len(own.losses), "start": own.start, "end": own.end}
    numbers |= {"known_before": known.before, "known_after": known.after}
    return Finding("does_not_learn", 0.9, numbers, picture=picture_of([own]), ends=True)


def _at_zero(patient: Patient, test: LrTest) -> Finding | None:
    """A rate of zero, or one that is no number: any usual one shows whether that is all."""
    trainer = patient.make_trainer() if patient.make_trainer is not None else None
    usual = USUAL_LR_OF_SGD if trainer is not None and trainer.optimizer_name == "sgd" else USUAL_LR
    run = add(test, patient, usual)
    if way_of(run) != "falls":
        return None
    test.proposal = usual
    own = test.runs[test.own]
    numbers = {"lr": test.own, "start": own.start, "end": own.end, "move": own.move * 100, "better_end": run.end}
    numbers |= {"proposal": usual, **_at_real_batch(patient, test)}
    return Finding("lr_too_low", 0.95, numbers, _changes(patient, usual), picture_of([own, run]))


def _at_real_batch(patient: Patient, test: LrTest) -> dict[str, Any]:
    """The proposal once more with a batch of training's size. Where it is lost there, a third of it is proposed."""
    lr = test.proposal or 0.0
    run, pictures = at_real_batch(patient, lr, test.runs.get(lr))
    if way_of(run) == "diverges":
        test.proposal = rounded(lr / 3)
        run, pictures = at_real_batch(patient, test.proposal)
    return {"batch": pictures, "batch_start": run.start, "batch_end": run.end, "batch_steps": len(run.losses)}


def _changes(patient: Patient, lr: float) -> tuple[Change, ...]:
    """`optim.lr` is before scaling with the batch."""
    if patient.settings is None:
        return ()
    optim = patient.settings.optim
    scale = updated(patient.settings, optim=updated(optim, lr=1.0)).lr
    return (Change("optim.lr", float(f"{lr / scale:.1e}")),)


def _seen(test: LrTest, finding: Finding | None, note: Note | None = None) -> Seen:
    runs = test.in_order()
    measured = {**_measured(test.runs[test.own]), "edge": test.edge, "proposal": test.proposal}
    measured["runs"] = {f"{run.lr:.2g}": {"end": plain(run.end), "way": way_of(run)} for run in runs}
    seen = Seen(measured=measured, findings=[finding] if finding is not None else [], picture=picture_of(runs))
    if finding is not None and "before_norm" in finding.numbers:
        note = Note("rate_may_heal", {"share": finding.numbers["before_norm"]})
    seen.notes += [] if note is None else [note]
    return seen


def _measured(run: HeldRun) -> dict[str, object]:
    return {
        "lr": plain(run.lr),
        "start": plain(run.start),
        "end": plain(run.end),
        "way": way_of(run),
        "update_to_weight": plain(run.move) if math.isfinite(run.move) else None,
    }
