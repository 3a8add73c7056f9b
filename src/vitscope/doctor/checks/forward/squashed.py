"""Is a softmax, or anything else that leaves numbers little room, between the model and a loss that has its own?

Cross-entropy of probabilities cannot fall below ln(e + K - 1) - 1, however sure and right the model is; that floor is
how the loss gives itself away. Sigmoids and the like give themselves away where the last layer is made to shout, and so
does a ReLU, which lets through what speaks for a class and not what speaks against it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from vitscope.doctor.anatomy import looks_trained
from vitscope.doctor.calls import classifier_of, pass_with
from vitscope.doctor.finding import Finding, Seen
from vitscope.doctor.patient import Patient, class_numbers
from vitscope.doctor.thresholds.forward import (
    FORWARD_PICTURES,
    LITTLE_ROOM,
    MOST_SMOOTHING,
    ONE_SIDED,
    PROBABILITY_SLACK,
)

SURE = 60.0
"""A logit so large that softmax of it is 1 in float32."""


@torch.no_grad()
def squashed(patient: Patient) -> Seen:
    images, labels = patient.sample(FORWARD_PICTURES)
    patient.model.eval()
    logits = patient.logits(images).float()
    classes = logits.shape[-1]
    right = F.one_hot(class_numbers(labels), classes).to(logits.dtype)
    floor = math.log(math.e + classes - 1) - 1
    plain, sure = float(patient.loss(right, labels)), float(patient.loss(SURE * right, labels))
    reach = _reach(patient, images[:2], classes)  # of a head that cannot be made to shout nothing is known
    least, most = reach or (float(logits.min()), float(logits.max()))
    seen = Seen(measured={"least": least, "most": most, "loss_floor": sure})
    # Smoothing adds to the loss of the right answer what it takes from its lead, here 1.
    smoothing = (plain - floor) * classes / (classes - 1)
    has_softmax = -PROBABILITY_SLACK < smoothing < MOST_SMOOTHING
    outside = has_softmax and (_are_probabilities(logits) or (reach is not None and most - least < LITTLE_ROOM))
    inside = abs(sure - floor) < PROBABILITY_SLACK * floor
    if outside or inside:
        least, most = (least, most) if outside else (0.0, 1.0)
        best = math.log1p((classes - 1) * math.exp(least - most))
        numbers = {"least": least, "most": most, "floor": best, "start": math.log(classes)}
        seen.findings.append(Finding("softmax_before_loss", 0.98, numbers))
    elif has_softmax and reach is not None and least > -ONE_SIDED * SURE and most > SURE / 2:
        is_trained = patient.facts.is_pretrained or looks_trained(patient.model)
        seen.findings.append(Finding("relu_before_loss", 0.45 if is_trained else 0.8, {"least": least, "most": most}))
    return seen


def _reach(patient: Patient, images: Tensor, classes: int) -> tuple[float, float] | None:
    """The least and the most the model gives where its last layer is as sure as can be of one class."""
    head = classifier_of(patient.model, images)
    if head is None or head.gave.shape[head.class_axis] != classes:
        return None

    def shout(gave: Tensor) -> Tensor:
        loud = torch.full_like(gave, -SURE)
        loud.select(head.class_axis, 0).fill_(SURE)
        return loud

    given = pass_with(patient.model, images, {head.name: shout}).float()
    return (float(given.min()), float(given.max())) if bool(given.isfinite().all()) else None


def _are_probabilities(rows: Tensor) -> bool:
    return bool((rows >= 0).all()) and bool((rows.sum(-1) - 1).abs().max() < PROBABILITY_SLACK)
