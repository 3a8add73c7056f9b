"""Does the learning rate last for the training? A schedule made for epochs and stepped for each batch is over within
the first of them.

A few calls of the owner's step tell how often it turns torch's schedulers on. The schedulers themselves then tell the
rates that come.
"""

from __future__ import annotations

import itertools

import torch
from torch import Tensor
from torch.optim.lr_scheduler import ReduceLROnPlateau

from vitscope.doctor.as_it_came import as_it_came
from vitscope.doctor.finding import Finding, Note, Seen
from vitscope.doctor.patient import Facts, Patient, has_own_step
from vitscope.doctor.picture import Line, Picture
from vitscope.doctor.thresholds.backward import (
    EARLY_SHARE,
    EARLY_SHARE_OF_EPOCH,
    RATE_BACK,
    RATE_GONE,
    SCHEDULE_TURNS,
)
from vitscope.doctor.turning import Turning, turning_of


def schedule(patient: Patient) -> Seen:
    if patient.make_trainer is None:
        return Seen(left_out="no_optimizer")
    trainer = patient.make_trainer()
    if not has_own_step(trainer) or patient.optimizer is None:
        return Seen() if patient.settings is not None else Seen(left_out="no_schedule_to_see")
    if not patient.schedulers:
        return Seen(left_out="no_scheduler_found")
    if any(isinstance(one, ReduceLROnPlateau) for one in patient.schedulers):
        return Seen(left_out="schedule_follows_loss")
    early = _early(patient.facts)
    if early is None:
        return Seen(left_out="length_unknown")
    with as_it_came(patient):
        turning = turning_of(patient, trainer)
    if turning is None:
        return Seen(left_out="schedule_turned_elsewhere")
    taken = _taken(patient.optimizer, turning)
    if taken is None or taken >= early:
        return Seen(left_out="training_has_begun")
    watched = _watched(patient, turning, -((taken - early) // turning.every), known=trainer.lr if taken else 0.0)
    if watched is None:
        return Seen(left_out="schedule_not_repeated")
    rates, top, gone, refuses = watched
    seen = Seen(measured={"watched": len(rates), "every": turning.every, "top": top, "last": rates[-1]})
    if gone is not None:
        steps = [taken + turning.every * turn for turn in range(len(rates))]
        _judge(seen, patient.facts, steps, rates, top, gone, steps[-1] + turning.every if refuses else None)
    return seen


def _judge(
    seen: Seen, facts: Facts, steps: list[int], rates: list[float], top: float, gone: int, ends: int | None
) -> None:
    """`ends`: the step at which the schedule refuses to go on."""
    numbers = {"top": top, "rate": rates[gone], "step": steps[gone], "steps": facts.steps_per_epoch or 0}
    lines = [Line("learning rate", steps, rates)]
    picture = Picture("Learning rate in your step", "step", "learning rate", lines, mark=steps[gone])
    is_back = max(rates[gone:]) >= RATE_BACK * top
    if is_back and not (_glides(rates, top) and steps[gone] - steps[0] < numbers["steps"]):
        seen.notes.append(Note("rate_goes_round", {name: numbers[name] for name in ("top", "rate", "step")}))
    elif facts.epochs is None:  # one epoch may be all of it, and may be cut short
        seen.notes.append(Note("rate_gone_within_epoch", numbers))
    elif is_back:
        # The mean rate is half of the top: such a network learns, but never comes to rest.
        numbers |= {"epochs": facts.epochs, "back": max(rates[gone:])}
        seen.findings.append(Finding("schedule_too_fast", 0.6, numbers, picture=picture))
    else:
        numbers |= {"epochs": facts.epochs}
        if ends is not None and ends <= facts.epochs * numbers["steps"]:
            numbers |= {"ends": ends}
        seen.findings.append(Finding("schedule_too_fast", 0.93, numbers, picture=picture))


def _early(facts: Facts) -> int | None:
    """Up to which step a rate may not be gone. Where the epochs are not known there may be one only."""
    if facts.steps_per_epoch is None:
        return None
    if facts.epochs is None:
        return int(EARLY_SHARE_OF_EPOCH * facts.steps_per_epoch)
    return int(EARLY_SHARE * facts.steps_per_epoch * facts.epochs)


def _taken(optimizer: torch.optim.Optimizer, turning: Turning) -> int | None:
    """Steps of training before the examination, as the optimiser or the schedule counts them; None where some were
    taken and neither does."""
    counts = [one["step"] for one in optimizer.state.values() if isinstance(one.get("step"), int | float | Tensor)]
    if optimizer.state and not counts and not turning.calls:
        return None
    return int(max([turning.calls, *counts]))


def _watched(
    patient: Patient, turning: Turning, early: int, *, known: float
) -> tuple[list[float], float, int | None, bool] | None:
    """The rates, the top until the rate was gone, when that was, and whether the schedule refused to go on. It is
    watched for as long again and longer: it may come back. `known` was the top before, which says nothing where the
    rate rises to it anew. None where the schedulers do not give the rates that the step had."""
    coming = turning.coming(patient)
    begun = list(itertools.islice(coming, 1 + len(turning.rates)))
    if begun[1:] != turning.rates:
        return None
    rates, top, gone, early = list[float](), 0.0, None, min(early, SCHEDULE_TURNS)
    for rate in itertools.chain(begun, coming):
        rates.append(rate)
        if gone is None:
            top = max(top, rate, known if len(rates) > 1 and rate <= rates[0] else 0.0)
            gone = len(rates) - 1 if rate <= RATE_GONE * top and top > 0 else None
        if len(rates) >= (early if gone is None else 3 * max(gone, early // 4)):
            return rates, top, gone, False
    return rates, top, gone, True


def _glides(rates: list[float], top: float) -> bool:
    """From its top at the beginning down and up again without a jump, as a half wave does that goes on for longer than
    it was made for. Cycles on purpose begin low, or jump back to the top."""
    jumps = (after - before for before, after in itertools.pairwise(rates))
    return rates[0] >= RATE_BACK * top and max(jumps) < RATE_BACK * top
