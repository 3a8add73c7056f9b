"""Does the loss begin where a model that knows nothing is: at its own value for equal logits, as a rule ln(classes)?"""

from __future__ import annotations

import torch
from torch import Tensor

from vitscope.doctor.batch import with_channels
from vitscope.doctor.finding import Finding, Seen
from vitscope.doctor.patient import Patient
from vitscope.doctor.thresholds.forward import LOSS_EXCESS, START_PICTURES


def loss_at_start(patient: Patient) -> Seen:
    """Lower is no fault: the model may have learned already. Much higher is: it is sure of what it cannot know."""
    if patient.facts.is_pretrained:
        return Seen(left_out="weights_from_elsewhere")
    images, labels = patient.sample(START_PICTURES)
    patient.model.eval()
    with torch.no_grad():
        logits = patient.logits(images)
        loss, expected = float(patient.loss(logits, labels)), float(patient.loss(torch.zeros_like(logits), labels))
        seen = Seen(measured={"loss": loss, "expected": expected, "spread": float(logits.std())})
        excess = loss - expected
        if not excess > LOSS_EXCESS:
            return seen
        standard = _excess(patient, _standardised(images), labels)
    numbers = {"loss": loss, "expected": expected, "spread": float(logits.std()), "standard": standard}
    if standard > LOSS_EXCESS:
        seen.findings.append(Finding("loss_wrong_at_start", 0.8, numbers))
    else:
        seen.findings.append(Finding("input_upsets_model", 0.6, numbers))
    return seen


def _excess(patient: Patient, images: Tensor, labels: Tensor) -> float:
    logits = patient.logits(images)
    return float(patient.loss(logits, labels) - patient.loss(torch.zeros_like(logits), labels))


def _standardised(images: Tensor) -> Tensor:
    pixels = with_channels(images)
    mean = pixels.mean((0, 2, 3), keepdim=True)
    return ((pixels - mean) / pixels.std((0, 2, 3), keepdim=True).clamp_min(1e-6)).view_as(images)
