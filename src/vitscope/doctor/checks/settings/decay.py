"""Does weight decay leave the weights anything to grow from?"""

from __future__ import annotations

import torch

from vitscope.doctor.finding import Change, Finding, Seen
from vitscope.doctor.patient import Patient, Trainer
from vitscope.doctor.setting_numbers import COUPLED, decay_numbers, is_eating
from vitscope.doctor.thresholds.settings import DECAY_OVER_GRADIENT, STRONG_DECAY

PICTURES = 32


def weight_decay(patient: Patient) -> Seen:
    if patient.make_trainer is None:
        return Seen(left_out="no_optimiser")
    trainer = patient.make_trainer()
    decay, lr = trainer.weight_decay, trainer.lr
    numbers = decay_numbers(decay, lr, trainer.optimizer_name)
    seen = Seen(measured={"weight_decay": decay, "lr": lr, "taken_in_100_steps": round(numbers["taken"], 4)})
    if decay < STRONG_DECAY:
        return seen
    is_strong = is_eating(numbers)
    if trainer.optimizer_name in COUPLED:
        ratio = _over_gradient(patient, trainer)
        numbers["ratio"] = seen.measured["decay_over_gradient"] = ratio
        is_strong = is_strong or ratio >= DECAY_OVER_GRADIENT
    if is_strong:
        changes = (Change("optim.weight_decay", numbers["usual"]),) if patient.settings is not None else ()
        seen.findings.append(Finding("weight_decay_too_high", 0.88, numbers, changes))
    return seen


def _over_gradient(patient: Patient, trainer: Trainer) -> float:
    """Norm of what decay adds, against the norm of the gradient, on one batch."""
    images, labels = patient.sample(PICTURES)
    patient.model.train()
    patient.model.zero_grad(set_to_none=True)
    patient.loss(patient.logits(images), labels).backward()
    moved = [(one, one.grad) for name, one in patient.model.named_parameters() if name in trainer.moved]
    pairs = [(one.detach(), grad) for one, grad in moved if grad is not None and one.ndim > 1]
    if not pairs:
        return 0.0
    weights = torch.stack([one.norm() for one, _ in pairs]).norm()
    grads = torch.stack([grad.norm() for _, grad in pairs]).norm()
    return float(trainer.weight_decay * weights / grads.clamp(min=1e-12))
