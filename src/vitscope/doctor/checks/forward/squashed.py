"""Is a softmax between the model and a loss that has its own?

Cross-entropy of probabilities cannot fall below ln(e + K - 1) - 1, however sure and right the model is; that floor is
how the loss gives itself away.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from vitscope.doctor.finding import Finding, Seen
from vitscope.doctor.patient import Patient
from vitscope.doctor.thresholds import FORWARD_PICTURES, PROBABILITY_SLACK

SURE = 60.0
"""A logit so large that softmax of it is 1 in float32."""


def squashed(patient: Patient) -> Seen:
    images, labels = patient.sample(FORWARD_PICTURES)
    patient.model.eval()
    with torch.no_grad():
        logits = patient.logits(images).float()
        right = F.one_hot(labels, logits.shape[-1]).to(logits.dtype)
        floor = math.log(math.e + logits.shape[-1] - 1) - 1
        plain, sure = float(patient.loss(right, labels)), float(patient.loss(SURE * right, labels))
    sums = logits.sum(-1)
    are_probabilities = _are_probabilities(logits)
    seen = Seen(measured={"smallest": float(logits.min()), "row_sum": float(sums.mean()), "loss_floor": sure})
    outside = are_probabilities and abs(plain - floor) < PROBABILITY_SLACK * floor
    inside = abs(sure - floor) < PROBABILITY_SLACK * floor
    if outside or inside:
        numbers = {
            "smallest": float(logits.min()),
            "row_sum": float(sums.mean()),
            "floor": plain if outside else sure,
            "start": math.log(logits.shape[-1]),
        }
        seen.findings.append(Finding("softmax_before_loss", 0.98, numbers))
    return seen


def _are_probabilities(rows: Tensor) -> bool:
    return bool((rows >= 0).all()) and bool((rows.sum(-1) - 1).abs().max() < PROBABILITY_SLACK)
