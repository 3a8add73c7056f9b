"""Does the learning rate last for the training? A schedule made for epochs and stepped for each batch is over within
the first of them.

The owner's step is taken again and again and the rate is read before each. What the model computes has no part in
that, so it is computed once and then answered from memory: hundreds of steps take less than a second.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Generator, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from vitscope.doctor.finding import Finding, Note, Seen
from vitscope.doctor.one_step import step_batch
from vitscope.doctor.patient import Facts, Patient, Trainer, has_own_step
from vitscope.doctor.picture import Line, Picture
from vitscope.doctor.thresholds.backward import (
    EARLY_SHARE,
    EARLY_SHARE_OF_EPOCH,
    RATE_BACK,
    RATE_GONE,
    SCHEDULE_SECONDS,
    SCHEDULE_STEPS,
)


def schedule(patient: Patient) -> Seen:
    if patient.make_trainer is None:
        return Seen(left_out="no_optimizer")
    trainer = patient.make_trainer()
    if not has_own_step(trainer) or patient.optimizer is None:
        return Seen() if patient.settings is not None else Seen(left_out="no_schedule_to_see")
    if any(isinstance(one, ReduceLROnPlateau) for one in patient.schedulers):
        return Seen(left_out="schedule_follows_loss")
    taken, early = _taken(patient.optimizer), _early(patient.facts)
    if taken is None or early is None:
        return Seen(left_out="length_unknown" if taken is not None else "training_has_begun")
    if taken >= early:
        return Seen(left_out="training_has_begun")
    rates, top, gone = _watched(patient, trainer, early - taken, known=trainer.lr if taken else 0.0)
    seen = Seen(measured={"watched": len(rates), "top": top, "last": rates[-1]})
    if gone is None:
        return seen
    steps = patient.facts.steps_per_epoch or 0
    numbers = {"top": top, "rate": rates[gone], "step": taken + gone, "steps": steps}
    numbers |= {"epochs": patient.facts.epochs} if patient.facts.epochs else {}
    lines = [Line("learning rate", list(range(taken, taken + len(rates))), rates)]
    picture = Picture("Learning rate in your step", "step", "learning rate", lines, mark=taken + gone)
    if max(rates[gone:]) < RATE_BACK * top:
        sure = 0.93 if patient.facts.epochs else 0.8
        seen.findings.append(Finding("schedule_too_fast", sure, numbers, picture=picture))
    elif _glides(rates, top) and gone < steps:
        # The mean rate is half of the top: such a network learns, but never comes to rest.
        seen.findings.append(Finding("schedule_too_fast", 0.6, numbers | {"back": max(rates[gone:])}, picture=picture))
    else:
        seen.notes.append(Note("rate_goes_round", {"top": top, "rate": rates[gone], "step": taken + gone}))
    return seen


def _early(facts: Facts) -> int | None:
    """Up to which step a rate may not be gone. Where the epochs are not known there may be one only."""
    if facts.steps_per_epoch is None:
        return None
    if facts.epochs is None:
        return int(EARLY_SHARE_OF_EPOCH * facts.steps_per_epoch)
    return int(EARLY_SHARE * facts.steps_per_epoch * facts.epochs)


def _taken(optimizer: torch.optim.Optimizer) -> int | None:
    """Steps of training before the examination; None where some were taken and the optimiser does not count."""
    if not optimizer.state:
        return 0
    counts = [one["step"] for one in optimizer.state.values() if isinstance(one.get("step"), int | float | Tensor)]
    return int(max(counts)) if counts else None


def _watched(patient: Patient, trainer: Trainer, early: int, *, known: float) -> tuple[list[float], float, int | None]:
    """The rates, the top until the rate was gone, and when that was. It is then watched for as long again and longer:
    it may come back. `known` was the top before, which says nothing where the rate rises to it anew."""
    rates, top, gone = list[float](), 0.0, None
    with contextlib.closing(_rates(patient, trainer)) as coming:
        for rate in itertools.islice(coming, SCHEDULE_STEPS):
            rates.append(rate)
            if gone is None:
                top = max(top, rate, known if len(rates) > 1 and rate <= rates[0] else 0.0)
                gone = len(rates) - 1 if rate <= RATE_GONE * top and top > 0 else None
            if len(rates) >= (early if gone is None else 3 * max(gone, early // 4)):
                break
    return rates, top, gone


def _rates(patient: Patient, trainer: Trainer) -> Generator[float]:
    """The largest of the groups, before each step. A schedule that is over may refuse to go on."""
    groups = [] if patient.optimizer is None else patient.optimizer.param_groups
    images, labels = step_batch(patient, trainer)
    began = time.perf_counter()
    with contextlib.ExitStack() as memory:
        memory.enter_context(_from_memory(patient.model))
        for number in itertools.count():
            yield max(float(group["lr"]) for group in groups)
            if time.perf_counter() - began > SCHEDULE_SECONDS:
                return
            try:
                trainer.step(images, labels)
            except Exception:  # the step may want what the pass leaves beside: then it has to be computed
                memory.close()
                try:
                    trainer.step(images, labels)
                except ValueError:
                    if not number:
                        raise
                    return


def _glides(rates: list[float], top: float) -> bool:
    """From its top at the beginning down and up again without a jump, as a half wave does that goes on for longer than
    it was made for. Cycles on purpose begin low, or jump back to the top."""
    jumps = (after - before for before, after in itertools.pairwise(rates))
    return rates[0] >= RATE_BACK * top and max(jumps) < RATE_BACK * top


@contextlib.contextmanager
def _from_memory(model: nn.Module) -> Iterator[None]:
    """Pictures of a shape are answered as the first of that shape, with no gradient but nought. Answers that are more
    than logits are computed."""
    compute, known = model.forward, dict[Any, Tensor]()
    weight = min((one for one in model.parameters() if one.requires_grad), key=Tensor.numel, default=None)

    def answer(*given: Any, **named: Any) -> Any:
        shape = given[0].shape if given and isinstance(given[0], Tensor) else None
        if shape in known and weight is not None:
            return known[shape] + 0 * weight.sum().to(known[shape])
        gave = compute(*given, **named)
        if shape is not None and isinstance(gave, Tensor):
            known[shape] = gave.detach().clone()
        return gave

    was = vars(model).get("forward")
    model.forward = answer
    try:
        yield
    finally:
        if was is None:
            del model.forward
        else:
            model.forward = was
