"""How a step of the owner's turns torch's schedulers on: learnt from a few calls, so that the schedulers themselves
can be asked for what comes later and the step, which may write files, is left alone."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

from torch.optim.lr_scheduler import LRScheduler

from vitscope.doctor.one_step import step_batch
from vitscope.doctor.patient import Patient, Trainer
from vitscope.doctor.thresholds.backward import STEP_CALLS, TURNING_CALLS


@dataclass(frozen=True)
class Turning:
    """A call that turns the schedulers on, as they all do."""

    turns: dict[LRScheduler, int]
    """How often it turns each of them; those within others go with them."""
    every: int
    """Of so many calls, one turns them on."""
    rates: list[float]
    """After each such call."""

    @property
    def calls(self) -> int:
        """Of the owner's step, as far as the schedulers have counted before."""
        return max(_count(one) // turns for one, turns in self.turns.items()) * self.every

    def coming(self, patient: Patient) -> Iterator[float]:
        """The rate now, then after each turn, without the step; a schedule that is over may refuse to go on."""
        yield rate_of(patient)
        while True:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # that the optimiser did not step between
                    for scheduler, turns in self.turns.items():
                        for _ in range(turns):
                            scheduler.step()
            except Exception:  # OneCycleLR's error, or that of a function of the owner's
                return
            yield rate_of(patient)


def turning_of(patient: Patient, trainer: Trainer) -> Turning | None:
    """Takes the owner's step up to STEP_CALLS times. None where its calls do not all, or not evenly, turn them on."""
    images, labels = step_batch(patient, trainer)
    outermost = _outermost(patient.schedulers)
    seen: list[tuple[int, dict[LRScheduler, int], float]] = []
    for number in range(STEP_CALLS):
        before = {one: _counts(one) for one in outermost}
        try:
            trainer.step(images, labels)
        except Exception:
            if not number:
                raise
            break
        turns = {one: _turned(before[one], _counts(one)) for one in outermost}
        if any(turns.values()):
            seen.append((number, {one: count for one, count in turns.items() if count}, rate_of(patient)))
        if len(seen) == TURNING_CALLS:
            break
    apart = {later - earlier for (earlier, _, _), (later, _, _) in itertools.pairwise(seen)}
    if len(apart) != 1 or any(turns != seen[0][1] for _, turns, _ in seen):
        return None
    return Turning(seen[0][1], apart.pop(), [rate for _, _, rate in seen])


def rate_of(patient: Patient) -> float:
    """The largest of the groups."""
    groups = [] if patient.optimizer is None else patient.optimizer.param_groups
    return max((float(group["lr"]) for group in groups), default=0.0)


def _within(scheduler: LRScheduler) -> Iterator[LRScheduler]:
    """Schedulers that one holds, as a sequence of them does."""
    for value in vars(scheduler).values():
        yield from (one for one in (value if isinstance(value, list | tuple) else (value,)) if _is_one(one))


def _is_one(value: object) -> bool:
    return isinstance(value, LRScheduler)


def _outermost(schedulers: tuple[LRScheduler, ...]) -> list[LRScheduler]:
    inner = {id(one) for scheduler in schedulers for one in _within(scheduler)}
    return [one for one in schedulers if id(one) not in inner]


def _counts(scheduler: LRScheduler) -> list[int]:
    """Its own count and those within: a chain has none of its own."""
    own = vars(scheduler).get("last_epoch", 0)
    return [own, *(count for one in _within(scheduler) for count in _counts(one))]


def _count(scheduler: LRScheduler) -> int:
    return max(_counts(scheduler))


def _turned(before: list[int], after: list[int]) -> int:
    return max(0, *(late - early for early, late in zip(before, after, strict=True)))
