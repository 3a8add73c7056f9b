"""The overfit test: a sound model learns one small batch by heart; one that cannot is wrong somewhere."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vitscope.doctor.anatomy import is_drop
from vitscope.doctor.as_it_came import as_it_came
from vitscope.doctor.patient import Pair, Patient, as_logits, class_numbers
from vitscope.doctor.thresholds.training import (
    HOPELESS_FALL,
    HOPELESS_LEVEL,
    HOPELESS_STEPS,
    OVERFIT_FROM,
    OVERFIT_SECONDS,
)


@dataclass(frozen=True)
class Attempt:
    """The batch at one learning rate."""

    lr: float
    losses: tuple[float, ...]
    accuracies: tuple[float, ...]
    was_cut_short: bool = False
    """Whether time ran out while it was still getting better: then it proves nothing."""

    @property
    def best(self) -> float:
        return max(self.accuracies, default=0.0)

    def first_above(self, accuracy: float) -> int | None:
        """Steps taken until more than this share was right."""
        return next((step for step, one in enumerate(self.accuracies) if one > accuracy), None)

    @property
    def steps(self) -> int:
        return len(self.losses)


def overfit(
    patient: Patient,
    *,
    lrs: Sequence[float],
    steps: int,
    goal: float = 1.0,
    pictures: int = 32,
    seconds: float = OVERFIT_SECONDS,
    gives_up: bool = True,
) -> list[Attempt]:
    """Adam on one batch of the patient's pictures, anew at each learning rate until one reaches the goal. Without
    anything that keeps a model from learning by heart: no dropout, decay, smoothing, clipping or schedule. `gives_up`:
    a rung that gets nowhere is left early."""
    images, given = random_batch(patient, pictures)
    labels = class_numbers(given)
    attempts: list[Attempt] = []
    for lr in lrs:
        with as_it_came(patient):
            attempts.append(_attempt(patient, images, labels, lr, steps, goal, seconds, gives_up))
        if attempts[-1].best >= goal:
            break
    return attempts


def random_batch(patient: Patient, pictures: int) -> Pair:
    """Drawn from a few batches: the first pictures of an unshuffled set are all of one class."""
    images, labels = patient.sample(OVERFIT_FROM)
    drawn = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))[:pictures].to(labels.device)
    return images[drawn], labels[drawn]


@contextlib.contextmanager
def nothing_dropped(model: nn.Module) -> Iterator[None]:
    """In training mode, but whatever drops by chance keeps everything; attention too, which holds its rate itself."""
    model.train()
    rates: list[tuple[nn.Module, str, float]] = []
    for module in model.modules():
        if is_drop(module):
            module.eval()
        for name in ("dropout", "attn_drop_rate"):
            rate = getattr(module, name, None)
            if isinstance(rate, float) and rate > 0:
                rates.append((module, name, rate))
                setattr(module, name, 0.0)
    try:
        yield
    finally:
        for module, name, rate in rates:
            setattr(module, name, rate)


def _attempt(
    patient: Patient, images: Tensor, labels: Tensor, lr: float, steps: int, goal: float, seconds: float, gives_up: bool
) -> Attempt:
    began = time.perf_counter()
    # All of them, whatever the owner froze or forgot: the question is whether the network can learn at all.
    parameters = [one.requires_grad_() for one in patient.model.parameters() if one.is_floating_point()]
    optimizer = torch.optim.Adam(parameters, lr)
    losses: list[float] = []
    accuracies: list[float] = []
    cut_short = False
    with nothing_dropped(patient.model):
        for _ in range(steps):
            optimizer.zero_grad(set_to_none=True)
            logits = as_logits(patient.model(images))
            loss = F.cross_entropy(logits.float(), labels)
            losses.append(float(loss.detach()))
            accuracies.append(float((logits.argmax(-1) == labels).float().mean()))
            if accuracies[-1] >= goal or not torch.isfinite(loss) or (gives_up and _is_hopeless(losses)):
                break
            if time.perf_counter() - began > seconds:
                cut_short = True
                break
            loss.backward()
            optimizer.step()
    return Attempt(lr, tuple(losses), tuple(accuracies), cut_short)


def _is_hopeless(losses: Sequence[float]) -> bool:
    """The lowest loss of late is hardly below the lowest before, and high still. Lowest ones, since a loss that jumps
    may be on its way all the same."""
    if len(losses) < 2 * HOPELESS_STEPS:
        return False
    late, before = min(losses[-HOPELESS_STEPS:]), min(losses[:-HOPELESS_STEPS])
    return late > before - HOPELESS_FALL * losses[0] and late > HOPELESS_LEVEL * losses[0]
