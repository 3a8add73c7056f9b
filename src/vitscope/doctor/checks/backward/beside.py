"""What learns by another way than the loss of the logits: by what the model gives besides them (auxiliary heads, a
teacher's), which a loss of the owner's may use, or by whatever the owner's own step adds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from vitscope.doctor.one_step import step_batch, watch_step
from vitscope.doctor.patient import Patient, as_logits, has_own_step


def reached_beside(patient: Patient, images: Tensor) -> set[str]:
    """Names of parameters. Moves the model where it has a step of its own."""
    return _by_other_outputs(patient, images) | _by_own_step(patient)


def _by_other_outputs(patient: Patient, images: Tensor) -> set[str]:
    with torch.enable_grad():
        given = patient.model(images)
        if isinstance(given, Tensor):
            return set()
        logits = as_logits(given)
        others = [one for one in _tensors(given) if one is not logits and one.requires_grad]
        if not others:
            return set()
        named = {name: one for name, one in patient.model.named_parameters() if one.requires_grad}
        total = torch.stack([one.float().square().mean() for one in others]).sum()
        grads = torch.autograd.grad(total, list(named.values()), allow_unused=True)
    return {name for name, grad in zip(named, grads, strict=True) if grad is not None and bool(grad.any())}


def _by_own_step(patient: Patient) -> set[str]:
    trainer = None if patient.make_trainer is None else patient.make_trainer()
    if trainer is None or not has_own_step(trainer):
        return set()
    step = watch_step(patient, trainer, *step_batch(patient, trainer))
    return set() if step is None else {name for name, grad in step.grads.items() if bool(grad.any())}


def _tensors(given: Any) -> Iterator[Tensor]:
    """All floating ones, however they are packed."""
    if isinstance(given, Tensor):
        if given.is_floating_point():
            yield given
    elif isinstance(given, dict):
        for one in given.values():
            yield from _tensors(one)
    elif isinstance(given, list | tuple):
        for one in given:
            yield from _tensors(one)
