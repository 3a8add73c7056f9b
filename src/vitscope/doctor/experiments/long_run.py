"""What a pool of few pictures cannot show: the patient's rate beside another on batches as they come, and a rate at the
patient's own batch size.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import Literal

from vitscope.doctor.experiments.held import HeldRun, hold, pool_of
from vitscope.doctor.patient import Pair, Patient, one_class_each
from vitscope.doctor.thresholds.training import (
    CRAWL,
    FRESH_SECONDS,
    FRESH_STEPS,
    NOISE_TIMES,
    REAL_SECONDS,
    REAL_STEPS,
    WARM_UP_SHARE,
)

Harm = Literal["harms", "helps", "not seen"]


@dataclass(frozen=True)
class Beside:
    """Two rates on the same fresh pictures, over the last third of the steps."""

    harm: Harm
    own: float
    """Mean loss there, at the patient's rate."""
    other: float
    steps: int
    runs: tuple[HeldRun, HeldRun]


def beside(
    patient: Patient, own: float, other: float, *, rises: tuple[float, float] = (WARM_UP_SHARE, WARM_UP_SHARE)
) -> Beside | None:
    """None where there is no time for enough steps. Both see the same pictures in the same order, so that their
    difference is free of how hard a batch is. `rises`: the share of the steps in which each comes to its rate."""
    size = len(pool_of(patient)[0][0])
    steps = min(FRESH_STEPS, int(FRESH_SECONDS / (patient.tried["seconds"] * size)))
    if steps < FRESH_STEPS // 2:
        return None
    fresh = batches_of(patient, steps, size)
    one, two = (
        hold(patient, fresh, lr, steps=steps, warm_up=rise) for lr, rise in zip((own, other), rises, strict=True)
    )
    if one.is_lost or two.is_lost:
        harm = "harms" if one.is_lost and not two.is_lost else "not seen"
        return Beside(harm, one.end, two.end, steps, (one, two))
    late = steps - steps // 3
    gaps = [a - b for a, b in zip(one.losses[late:], two.losses[late:], strict=True)]
    gap = statistics.fmean(gaps)
    error = statistics.stdev(gaps) / math.sqrt(len(gaps)) if len(gaps) > 1 else math.inf
    is_clear = abs(gap) > max(NOISE_TIMES * error, CRAWL * abs(one.start))
    harm = "not seen" if not is_clear else "harms" if gap > 0 else "helps"
    return Beside(harm, statistics.fmean(one.losses[late:]), statistics.fmean(two.losses[late:]), steps, (one, two))


def at_real_batch(patient: Patient, lr: float, known: HeldRun | None = None) -> tuple[HeldRun, int]:
    """A few steps with as many pictures in a batch as training has, as far as there is time, and how many they were.
    `known`: the run at that rate with the pool's batches, which a quick examination does not repeat where there is time
    for hardly larger ones."""
    small = len(pool_of(patient)[0][0])
    affordable = int(REAL_SECONDS / REAL_STEPS / patient.tried["seconds"])
    size = max(small, min(patient.facts.batch_size or small, affordable - affordable % 2))
    if patient.is_quick and known is not None and size < 2 * small:
        return known, small
    pool = batches_of(patient, 2, size)
    return hold(patient, pool, lr, steps=REAL_STEPS), max(len(images) for images, _ in pool)


def batches_of(patient: Patient, count: int, size: int) -> list[Pair]:
    """Of pictures as they come, one epoch after another where one does not suffice."""
    found: list[Pair] = []
    while len(found) < count:
        before = len(found)
        for images, labels in patient.train():
            found.append((images[:size].to(patient.device), one_class_each(labels[:size]).to(patient.device)))
            if len(found) == count:
                break
        if len(found) == before:
            break
    return found
