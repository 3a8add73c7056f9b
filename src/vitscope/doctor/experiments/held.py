"""A few steps with the patient's own optimiser at a learning rate that is held: what the loss does there.

A small pool of real batches is gone through again and again. Every pass sees the same pictures, so that the mean loss
of a pass is free of the luck of the draw, and a model that moves at all is seen to move within a few passes.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from vitscope.doctor.as_it_came import as_it_came
from vitscope.doctor.patient import Pair, Patient, Trainer, class_numbers, one_class_each
from vitscope.doctor.thresholds.training import (
    COLLECTING_SHARE,
    COMFORTABLE_UPDATE,
    CRAWL,
    FEWEST_BATCHES,
    FEWEST_PICTURES,
    HELD_STEPS,
    LOSS_IS_LOST,
    PLAIN_FALL,
    PLAIN_STEPS,
    POOL_BATCHES,
    POOL_PICTURES,
    SLOW_UPDATE,
    STEP_SECONDS,
    UNLEARNT,
    WARM_UP_SHARE,
)


@dataclass(frozen=True)
class HeldRun:
    """What some steps came to."""

    lr: float
    losses: tuple[float, ...]
    """Before each step. Ends where the loss diverged."""
    batches: int
    """Of the pool: losses that far apart are of the same pictures."""
    moves: tuple[float, ...] = ()
    """By what share of their length a step changed the weight matrices, all together, once the rate was held."""
    seconds: float = 0.0
    """Of the processor, by its threads."""

    @property
    def passes(self) -> list[float]:
        """Mean loss of each whole pass through the pool."""
        whole = len(self.losses) // self.batches * self.batches
        return [statistics.fmean(self.losses[at : at + self.batches]) for at in range(0, whole, self.batches)]

    @property
    def start(self) -> float:
        """Before any step: the same at every rate."""
        return self.losses[0] if self.losses else math.nan

    @property
    def end(self) -> float:
        """Where it has come to: the middle of the last third of the passes; infinite where the loss diverged."""
        if self.is_lost:
            return math.inf
        if not self.passes:
            return self.losses[-1]
        return statistics.median(self.passes[-max(1, len(self.passes) // 3) :])

    @property
    def fall(self) -> float:
        """How far it came down; negative where it rose."""
        return self.start - self.end

    @property
    def move(self) -> float:
        """Typically, in the earlier half: later ones are small again where weights have grown out of all measure. Calls
        that only collect gradients are no steps."""
        updates = [one for one in self.moves if one != 0] or self.moves
        return statistics.median(updates[: max(1, len(updates) // 2)]) if updates else math.nan

    @property
    def collects(self) -> bool:
        """Whether calls between updates moved nothing, as where gradients are collected: each update may then be of the
        same one of the pool's batches, and what it does to the others' loss is no measure of the rate. What moves
        nothing in the end is dead instead."""
        last = max((at for at, one in enumerate(self.moves) if one != 0), default=-1)
        before = self.moves[: last + 1]
        return before.count(0.0) >= COLLECTING_SHARE * max(1, len(before))

    @property
    def is_lost(self) -> bool:
        if not self.losses:
            return True
        return not math.isfinite(self.losses[-1]) or self.losses[-1] > LOSS_IS_LOST * max(self.losses[0], 1.0)

    @property
    def noise(self) -> float:
        """How far a pass's mean is from the line between its neighbours, typically."""
        means = self.passes
        off = [abs(means[at] - (means[at - 1] + means[at + 1]) / 2) for at in range(1, len(means) - 1)]
        return statistics.median(off) if off and math.isfinite(sum(off)) else 0.0


def pool_of(patient: Patient, *, pictures: int = POOL_PICTURES, batches: int = POOL_BATCHES) -> list[Pair]:
    """The first real batches, cut to what a step can do in the time it may take, the same for every experiment. Mixed
    pictures count as the class they show most of: shares would hide what is learnt below what cannot be."""
    if "pool" not in patient.tried:
        patient.tried["pool"] = _pool(patient, pictures, batches)
    return patient.tried["pool"]


def _pool(patient: Patient, pictures: int, batches: int) -> list[Pair]:
    pool: list[Pair] = []
    for images, labels in patient.train():
        pool.append((images.to(patient.device), one_class_each(labels).to(patient.device)))
        if len(pool) == batches:
            break
    size = _affordable(patient, pool[0], pictures)
    if len(pool) < FEWEST_BATCHES and len(pool[0][0]) >= 2 * size:  # one huge batch is several small ones
        images, labels = pool[0]
        pool = list(zip(images.split(size), labels.split(size), strict=True))[:batches]
    return [(images[:size], labels[:size]) for images, labels in pool]


@dataclass(frozen=True)
class Known:
    """How unlikely the model holds the labels to be (mean cross-entropy), whatever loss its owner has."""

    before: float
    after: float

    @property
    def is_lost(self) -> bool:
        return self.after > self.before + UNLEARNT


def own_run(patient: Patient) -> HeldRun:
    """At the patient's own rate; several checks ask for it, and it is made once. What the model knows of the labels
    before and after is kept beside it."""
    if "own" not in patient.tried:
        pool, after = pool_of(patient), [math.nan]
        with as_it_came(patient):
            before = _unlikely(patient, pool)

        def look() -> None:
            after[0] = _unlikely(patient, pool)

        patient.tried["own"] = hold(patient, pool, None, steps=HELD_STEPS, is_enough=is_plain, at_end=look)
        patient.tried["known"] = Known(before, after[0])
    return patient.tried["own"]


def is_plain(run: HeldRun) -> bool:
    """Well past the rise, far down, in steps of a usual size: the rest of the run would show nothing else. A loss below
    zero is not plain."""
    if run.start <= 0 or len(run.losses) < PLAIN_STEPS or not SLOW_UPDATE <= run.move <= COMFORTABLE_UPDATE:
        return False
    return run.fall > PLAIN_FALL * abs(run.start) and run.noise < CRAWL * abs(run.start)


def hold(
    patient: Patient,
    pool: Sequence[Pair],
    lr: float | None,
    *,
    steps: int,
    warm_up: float = WARM_UP_SHARE,
    relax_decay: bool = False,
    relax_clip: bool = False,
    is_enough: Callable[[HeldRun], bool] | None = None,
    at_end: Callable[[], None] | None = None,
) -> HeldRun:
    """From the patient's own weights, `steps` steps: a short rise, then the rate is held. Put back afterwards.
    `is_enough` is asked after each pass whether it is decided; `at_end` may look at the model before it is put back."""
    with as_it_came(patient):
        torch.manual_seed(0)  # each run drops the same: what differs is the rate alone
        trainer = trainer_of(patient)
        if relax_decay or relax_clip:
            trainer.relax(decay=relax_decay, clip=relax_clip)
        top = trainer.lr if lr is None else lr
        rise = max(1, round(steps * warm_up)) if warm_up > 0 else 0
        matrices = [one for name, one in patient.model.named_parameters() if one.ndim > 1 and name in trainer.moved]
        losses: list[float] = []
        moves: list[float] = []
        run, began = HeldRun(top, (math.nan,), len(pool)), time.process_time()
        for step, (images, labels) in zip(range(steps), _again(pool), strict=False):
            trainer.hold_lr(top * min(1.0, (step + 1) / (rise + 1)))
            before = [one.detach().clone() for one in matrices] if step >= rise else []
            losses.append(loss_of_step(patient, trainer, images, labels))
            moves += [_move(before, matrices)] if before else []
            seconds = (time.process_time() - began) / torch.get_num_threads()
            run = HeldRun(top, tuple(losses), len(pool), tuple(moves), seconds)
            if run.is_lost or (is_enough is not None and len(losses) % len(pool) == 0 and is_enough(run)):
                break
        if at_end is not None:
            at_end()
        return run


def trainer_of(patient: Patient) -> Trainer:
    """For checks that have made sure there is one."""
    if patient.make_trainer is None:
        raise ValueError("there is no optimiser to train with")
    return patient.make_trainer()


def loss_of_step(patient: Patient, trainer: Trainer, images: torch.Tensor, labels: torch.Tensor) -> float:
    """One step. An owner's step that gives no loss is asked for it by a forward pass of ours."""
    loss = trainer.step(images, labels)
    if math.isfinite(loss):
        return loss
    with torch.no_grad():
        return float(patient.loss(patient.logits(images), labels))


def _affordable(patient: Patient, batch: Pair, pictures: int) -> int:
    """How many pictures a step can take: by the time one takes, of the second, since the first prepares things."""
    images, labels = batch
    few = min(len(images), FEWEST_PICTURES)
    with as_it_came(patient):
        trainer = trainer_of(patient)
        trainer.hold_lr(0.0)
        trainer.step(images[:few], labels[:few])
        began = time.perf_counter()
        trainer.step(images[:few], labels[:few])
        seconds = (time.perf_counter() - began) / few
    patient.tried["seconds"] = max(seconds, 1e-9)
    affordable = int(STEP_SECONDS / patient.tried["seconds"])
    return max(few, min(len(images), pictures, affordable - affordable % 2))  # mixing pairs wants an even number


@torch.no_grad()
def _unlikely(patient: Patient, pool: Sequence[Pair]) -> float:
    patient.model.train()
    return statistics.fmean(float(F.cross_entropy(patient.logits(x).float(), class_numbers(y))) for x, y in pool)


@torch.no_grad()
def _move(before: Sequence[torch.Tensor], after: Sequence[torch.Tensor]) -> float:
    changed = length_of([new - old for old, new in zip(before, after, strict=True)])
    length = float(length_of(before))
    return float(changed) / length if length > 0 else math.nan


def length_of(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """() of all together, in double precision, where the first one lies: a model may be spread over several devices.
    Nothing is waited for where it lies on one."""
    norms = [torch.linalg.vector_norm(one, dtype=torch.float64) for one in tensors]
    return torch.stack([one.to(norms[0].device) for one in norms]).norm()


def _again(pool: Sequence[Pair]) -> Iterator[Pair]:
    while True:
        yield from pool
