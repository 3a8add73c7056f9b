"""A short run with the patient's own trainer, as it is or with one thing switched off."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import nn

from vitscope.doctor.anatomy import is_drop
from vitscope.doctor.as_it_came import as_it_came
from vitscope.doctor.experiments.held import HeldRun, hold
from vitscope.doctor.patient import Pair, Patient
from vitscope.doctor.thresholds.training import SHORT_RUN_STEPS


def run_with(
    patient: Patient,
    pool: Sequence[Pair],
    *,
    lr: float | None = None,
    decay: bool = True,
    clip: bool = True,
    drops: bool = True,
    steps: int = SHORT_RUN_STEPS,
    is_enough: Callable[[HeldRun], bool] | None = None,
    at_end: Callable[[], None] | None = None,
) -> HeldRun:
    """What is False is switched off for this run; everything else is the patient's."""
    with nothing_drawn(patient.model) if not drops else contextlib.nullcontext():
        return hold(
            patient,
            pool,
            lr,
            steps=steps,
            relax_decay=not decay,
            relax_clip=not clip,
            is_enough=is_enough,
            at_end=at_end,
        )


@contextlib.contextmanager
def nothing_drawn(model: nn.Module) -> Iterator[None]:
    """Rates of zero, since a trainer of the owner's puts the model into training mode at each step."""
    rates = [
        (module, name, rate)
        for module in model.modules()
        for name in ("p", "rate", "drop_prob", "dropout")
        if isinstance(rate := getattr(module, name, None), float) and (is_drop(module) or name == "dropout")
    ]
    for module, name, _ in rates:
        setattr(module, name, 0.0)
    try:
        yield
    finally:
        for module, name, rate in rates:
            setattr(module, name, rate)


def largest_dropout(patient: Patient) -> float:
    rates = [float(one.p) for one in patient.model.modules() if isinstance(one, nn.modules.dropout._DropoutNd)]
    rates += [one.dropout for one in patient.model.modules() if isinstance(one, nn.MultiheadAttention)]
    return max(rates, default=0.0)


def grad_norm_of(patient: Patient, pool: Sequence[Pair]) -> float:
    """Before clipping, of one batch, as the patient is."""
    images, labels = pool[0]
    with as_it_came(patient):
        patient.model.train()
        patient.model.zero_grad(set_to_none=True)
        patient.loss(patient.logits(images), labels).backward()
        grads = [one.grad for one in patient.model.parameters() if one.grad is not None]
        return float(torch.nn.utils.get_total_norm(grads)) if grads else math.nan
