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
from vitscope.doctor.experiments.held import Run, hold, loss_of_step, trainer_of
from vitscope.doctor.patient import Pair, Patient
from vitscope.doctor.thresholds import (
    CRAWL,
    HELD_STEPS,
    LOST_TO_LOWER,
    LOW_LOSS,
    LR_EDGE_RATIO,
    MARGIN_BELOW_EDGE,
    NO_GAIN,
    NOISE_TIMES,
    SWINGS,
    UPDATE_TOO_LARGE,
)

Way = Literal["falls", "crawls", "oscillates", "diverges"]


@dataclass
class LrTest:
    """Runs by their rate, lowest first."""

    own: float
    runs: dict[float, Run] = field(default_factory=dict)
    edge: float | None = None
    """The largest rate found that still falls; None where nothing was looked for."""
    proposal: float | None = None
    """Below the edge, and measured."""

    def in_order(self) -> list[Run]:
        return [self.runs[lr] for lr in sorted(self.runs)]


def way_of(run: Run) -> Way:
    """By all of the held part, never by a single step."""
    if run.is_lost or run.end > run.start + max(CRAWL * run.start, NOISE_TIMES * run.noise):
        return "diverges"
    if _swing(run) > SWINGS * run.start:
        return "oscillates"
    if run.fall < max(CRAWL * run.start, NOISE_TIMES * run.noise):
        return "crawls"
    return "falls"


def is_too_high(run: Run, lower: Run) -> bool:
    """Whether a tenth of the rate does clearly better; or steps are so large that each undoes what others learnt, and
    ten times the rate bought next to nothing."""
    if way_of(lower) == "falls":
        least = max(CRAWL * run.start, NOISE_TIMES * max(run.noise, lower.noise))
        if way_of(run) in ("diverges", "crawls", "oscillates") and lower.end < run.end - least:
            return True
        if run.fall < LOST_TO_LOWER * lower.fall and lower.end < run.end - least:
            return True
    return run.move > UPDATE_TOO_LARGE and not _is_well(run) and run.fall < NO_GAIN * lower.fall


def held_at(patient: Patient, pool: Sequence[Pair], lrs: Sequence[float], *, steps: int = HELD_STEPS) -> LrTest:
    """Hold each of them."""
    with as_it_came(patient):
        test = LrTest(trainer_of(patient).lr)
    for lr in lrs:
        add(test, patient, pool, lr, steps=steps)
    return test


def add(test: LrTest, patient: Patient, pool: Sequence[Pair], lr: float, *, steps: int = HELD_STEPS) -> Run:
    if lr not in test.runs:
        test.runs[lr] = hold(patient, pool, lr, steps=steps)
    return test.runs[lr]


def find_edge(test: LrTest, patient: Patient, pool: Sequence[Pair], *, bad: float, steps: int = HELD_STEPS) -> None:
    """Go down from a rate that is bad, by tens, to one that is good; halve the way between them; propose less."""
    good = bad
    for _ in range(3):
        good /= 10
        run = add(test, patient, pool, good, steps=steps)
        if _is_good(run):
            break
    else:
        return
    bad = good * 10
    while bad / good > LR_EDGE_RATIO:
        between = math.sqrt(bad * good)
        if _is_good(add(test, patient, pool, between, steps=steps)):
            good = between
        else:
            bad = between
    test.edge = good
    test.proposal = _round(good / MARGIN_BELOW_EDGE)
    add(test, patient, pool, test.proposal, steps=steps)


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


def _is_good(run: Run) -> bool:
    return way_of(run) == "falls" and (_is_well(run) or not run.move > UPDATE_TOO_LARGE)


def _is_well(run: Run) -> bool:
    """Who has learnt the pool by heart has not been hurt."""
    return run.end < LOW_LOSS * run.start


def _swing(run: Run) -> float:
    """The mean rise from one pass to the next, over the later half."""
    means = run.passes[len(run.passes) // 2 :]
    rises = [max(0.0, after - before) for before, after in itertools.pairwise(means)]
    return sum(rises) / len(rises) if rises else 0.0


def _round(lr: float) -> float:
    """One digit: more would be a claim that nothing measured."""
    return float(f"{lr:.0e}")
