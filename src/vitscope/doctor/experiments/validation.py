"""A look at a few validation pictures, as evaluation sees them."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from vitscope.doctor.patient import Patient
from vitscope.doctor.thresholds.training import VALIDATION_PICTURES


@dataclass(frozen=True)
class Looked:
    loss: float
    accuracy: float


@torch.no_grad()
def validation_of(patient: Patient) -> Looked:
    """Leaves the model in evaluation mode: its trainer puts it back at the next step."""
    images, labels = patient.sample(VALIDATION_PICTURES, "val")
    patient.model.eval()
    logits = patient.logits(images)
    right = (logits.argmax(-1) == labels).float().mean()
    return Looked(float(patient.loss(logits, labels)), float(right))
