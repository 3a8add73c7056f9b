"""Does a step in fp16 scale its loss? What is below 6e-5 loses bits in fp16, and what is below 6e-8 becomes zero.

Seen where it happens: with a scaler, the gradient that arrives at the logits is thousands of times the loss's own.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from vitscope.doctor.calls import first_tensor
from vitscope.doctor.finding import Finding, Seen
from vitscope.doctor.modes import train_without_chance
from vitscope.doctor.one_step import mean_gradient, watch_step
from vitscope.doctor.patient import Patient, Trainer, as_logits, has_own_step
from vitscope.doctor.still import still
from vitscope.doctor.thresholds.backward import FP16_PICTURES, SCALED_TIMES

SMALLEST = torch.finfo(torch.float16).tiny
"""Of the numbers that have all their bits."""


def half(patient: Patient) -> Seen:
    if patient.make_trainer is None:
        return Seen(left_out="no_optimizer")
    trainer = patient.make_trainer()
    is_owners = has_own_step(trainer)
    holds_half = any(one.dtype == torch.float16 for one in patient.model.parameters())
    if patient.facts.dtype != torch.float16 and not holds_half and not is_owners:
        return Seen(left_out="no_fp16")
    images, labels = patient.sample(FP16_PICTURES)
    train_without_chance(patient.model)
    watched = _Watched(patient.device.type)
    with still(patient.model, images):
        exact = mean_gradient(patient, images, labels)
        own = _at_logits(patient, images, labels)
        watched.step(patient, trainer, images, labels)
    if not watched.is_half:
        return Seen(left_out="no_fp16")
    scale = watched.largest / own if own > 0 else 1.0
    share = _share_below(exact)
    seen = Seen(measured={"scale": scale, "small": share})
    if scale < SCALED_TIMES:
        seen.findings.append(
            Finding("fp16_without_scaler", 0.92 if is_owners else 0.8, {"share": share, "scale": scale})
        )
    return seen


class _Watched:
    """One step of the owner's: whether products were in fp16, and the largest gradient that came to the logits."""

    def __init__(self, device: str) -> None:
        self.device, self.is_half, self.largest = device, False, 0.0

    def step(self, patient: Patient, trainer: Trainer, images: Tensor, labels: Tensor) -> None:
        hook = patient.model.register_forward_hook(self._look)
        try:
            watch_step(patient, trainer, images, labels)
        finally:
            hook.remove()

    def _look(self, module: nn.Module, _given: Any, gave: Any) -> None:
        logits = as_logits(gave)
        casts = torch.is_autocast_enabled(self.device) and torch.get_autocast_dtype(self.device) == torch.float16
        self.is_half = self.is_half or casts or logits.dtype == torch.float16
        if logits.requires_grad:
            logits.register_hook(self._arrived)

    def _arrived(self, grad: Tensor) -> None:
        size = float(grad.float().abs().max())
        self.largest = max(self.largest, size if size == size else float("inf"))  # NaN: a scale that was too large


def _at_logits(patient: Patient, images: Tensor, labels: Tensor) -> float:
    with torch.no_grad():
        logits = first_tensor(patient.logits(images))
    if logits is None:
        return 0.0
    logits = logits.detach().float().requires_grad_()
    (grad,) = torch.autograd.grad(patient.loss(logits, labels), logits)
    return float(grad.abs().max())


def _share_below(grads: dict[str, Tensor]) -> float:
    there = sum(int((grad != 0).sum()) for grad in grads.values())
    small = sum(int(((grad != 0) & (grad.abs() < SMALLEST)).sum()) for grad in grads.values())
    return small / max(there, 1)
