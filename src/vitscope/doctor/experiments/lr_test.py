"""An lr test made for transformers: short runs that warm up, then hold a rate, each from the same weights.

The classic sweep raises the rate within one run. A transformer is still warming up when the sweep passes the rates that
matter, and what it reports is too high; it is here to be compared with (`classic_sweep`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from vitscope.doctor.as_it_came import as_it_came
from vitscope.doctor.experiments.held import HeldRun, hold, is_plain, loss_of_step, own_run, pool_of, trainer_of
from vitscope.doctor.patient import Pair, Patient
from vitscope.doctor.thresholds.training import (
    COMFORTABLE_UPDATE,
    CRAWL,
    HELD_STEPS,
    LARGER_BATCH,
    LOST_TO_LOWER,
    LOW_LOSS,
    LOWEST_LR_RATIO,
    LR_EDGE_RATIO,
    LR_TOO_LOW_FALL,
    MARGIN_BELOW_EDGE,
    NOISE_TIMES,
    PLAIN_FALL,
    PLAIN_STEPS,
    QUICK_EDGE_SECONDS,
    REPLACED,
    REPLACED_STEPS,
    SLOW_UPDATE,
    SWINGS,
    UPDATE_TOO_LARGE,
)

Way = Literal["falls", "crawls", "oscillates", "diverges"]


@dataclass
class LrTest:
    """Runs by their rate, on the same pool of pictures."""

    own: float
    runs: dict[float, HeldRun] = field(default_factory=dict)
    edge: float | None = None
    """The largest rate found that still falls; None where nothing was looked for."""
    proposal: float | None = None
    """Below the edge, and measured."""

    def in_order(self) -> list[HeldRun]:
        return [self.runs[lr] for lr in sorted(self.runs)]


def way_of(run: HeldRun) -> Way:
    """By all of the held part, never by a single step."""
    size = abs(run.start)
    if run.is_lost or run.end > run.start + max(CRAWL * size, NOISE_TIMES * run.noise):
        return "diverges"
    if _swing(run) > SWINGS * size:
        return "oscillates"
    if run.fall < max(CRAWL * size, NOISE_TIMES * run.noise):
        return "crawls"
    return "falls"


def is_better(run: HeldRun, other: HeldRun) -> bool:
    """Whether it came clearly further down: by more than noise, and by more than a crawl."""
    least = max(CRAWL * abs(other.start), NOISE_TIMES * max(run.noise, 0.0 if other.is_lost else other.noise))
    return run.end < other.end - least


def is_too_high(run: HeldRun, lower: HeldRun) -> bool:
    """Whether a tenth of the rate does clearly better on the same pictures."""
    if way_of(lower) != "falls" or not is_better(lower, run):
        return False
    return way_of(run) != "falls" or run.fall < LOST_TO_LOWER * lower.fall


def is_too_low(run: HeldRun, higher: HeldRun) -> bool:
    """Whether steps hardly move the weights, and a hundred times the rate learns far more without coming near to what
    is too much."""
    if way_of(higher) != "falls" or not higher.move <= COMFORTABLE_UPDATE or not run.move < SLOW_UPDATE:
        return False
    return run.fall < LR_TOO_LOW_FALL * higher.fall


def lr_test_of(patient: Patient) -> LrTest:
    """With the run at the patient's own rate in it; one for all checks."""
    if "lr_test" not in patient.tried:
        run = own_run(patient)
        patient.tried["lr_test"] = LrTest(run.lr, {run.lr: run})
    return patient.tried["lr_test"]


def add(test: LrTest, patient: Patient, lr: float) -> HeldRun:
    """As long as the patient's own, which ends early where all is plain. Beside one that was lost there is nothing to
    compare, and each ends when it is decided."""
    if lr not in test.runs:
        own = test.runs[test.own]
        steps = HELD_STEPS if own.is_lost else len(own.losses)
        is_enough = _is_decided if own.is_lost else None
        test.runs[lr] = hold(patient, pool_of(patient), lr, steps=steps, is_enough=is_enough)
    return test.runs[lr]


def at_its_batch(test: LrTest, patient: Patient) -> HeldRun | None:
    """SGD's rate belongs to its batch: the fewer pictures, the noisier the gradient, and as much less of the rate does
    the same (Goyal et al. 2017). This is the pool's small batches at that rate. None where training's are no larger."""
    size, batch = len(pool_of(patient)[0][0]), patient.facts.batch_size
    if batch is None or batch <= size:
        return None
    return add(test, patient, test.own / min(batch / size, LARGER_BATCH))


def _is_decided(run: HeldRun) -> bool:
    """Plainly good, or so little down by now, with steps that write over what others learnt, or not down at all, that
    the rest of the steps would not make it good."""
    is_up = run.fall < PLAIN_FALL * abs(run.start)
    if len(run.losses) < PLAIN_STEPS:
        return len(run.losses) >= REPLACED_STEPS and run.move > REPLACED and is_up
    return is_plain(run) or (run.move > UPDATE_TOO_LARGE and is_up) or run.fall <= 0


def find_edge(test: LrTest, patient: Patient) -> None:
    """Go down from the patient's rate by tens to one that is good; halve the way between them; propose less."""
    if test.edge is not None:
        return
    own = test.runs[test.own]
    good, tried = test.own, 0
    while tried < 3 and good > test.own * LOWEST_LR_RATIO:
        good /= 10
        run = add(test, patient, good)
        if is_good(run, own):
            break
        tried += not run.is_lost  # a run that is lost takes a few steps only
    else:
        return
    bad = good * 10
    while bad / good > LR_EDGE_RATIO:
        if patient.is_quick and sum(run.seconds for run in test.runs.values()) > QUICK_EDGE_SECONDS:
            test.edge, test.proposal = math.sqrt(bad * good), good
            return
        between = math.sqrt(bad * good)
        if is_good(add(test, patient, between), own):
            good = between
        else:
            bad = between
    test.edge = good
    test.proposal = rounded(good / MARGIN_BELOW_EDGE)
    add(test, patient, test.proposal)


def look_above(test: LrTest, patient: Patient, *, times: Sequence[float] = (10**0.5, 10.0)) -> None:
    """The edge above a rate that is good: the last one of these that is good too."""
    own = test.runs[test.own]
    test.edge = test.own
    for one in times:
        run = add(test, patient, test.own * one)
        if not is_good(run, own) or is_better(own, run):
            return
        test.edge = run.lr


def classic_sweep(
    patient: Patient, pool: Sequence[Pair], *, lowest: float = 1e-6, highest: float = 1.0, steps: int = 60
) -> tuple[list[float], list[float]]:
    """Rates and losses of one run whose rate rises by a factor at each step, until the loss is lost."""
    lrs: list[float] = []
    losses: list[float] = []
    with as_it_came(patient):
        trainer = trainer_of(patient)
        for step in range(steps):
            lr = lowest * (highest / lowest) ** (step / (steps - 1))
            trainer.hold_lr(lr)
            loss = loss_of_step(patient, trainer, *pool[step % len(pool)])
            if not math.isfinite(loss) or loss > 4 * (losses or [loss])[0]:
                break
            lrs.append(lr)
            losses.append(loss)
    return lrs, losses


def is_good(run: HeldRun, own: HeldRun) -> bool:
    """Comes down, or at least further than the patient's rate, in steps that leave the weights what they are."""
    if has_large_steps(run):
        return False
    return way_of(run) == "falls" or (way_of(run) == "crawls" and is_better(run, own))


def has_large_steps(run: HeldRun) -> bool:
    """Each writes over what others learnt, whatever the loss does for a while. Who has learnt the pictures by heart has
    not been hurt: an easy task bears large steps."""
    return run.move > UPDATE_TOO_LARGE and run.end > LOW_LOSS * run.start


def rounded(lr: float) -> float:
    """One digit: more would be a claim that nothing measured."""
    return float(f"{lr:.0e}")


def _swing(run: HeldRun) -> float:
    """The mean rise from one pass to the next, over the later half."""
    means = run.passes[len(run.passes) // 2 :]
    rises = [max(0.0, after - before) for before, after in itertools.pairwise(means)]
    return sum(rises) / len(rises) if rises else 0.0
