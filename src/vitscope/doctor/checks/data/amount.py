"""Are there enough pictures to learn anything general from?"""

from __future__ import annotations

import torch

from vitscope.doctor.experiments.probe import predict_other
from vitscope.doctor.finding import Finding, Note, Seen
from vitscope.doctor.glance import glance
from vitscope.doctor.patient import Patient
from vitscope.doctor.thresholds.data import FEW, FEW_AGREEMENT, FEW_PER_CLASS, HARDLY_ANY, HARDLY_ANY_AGREEMENT


def amount_of_pictures(patient: Patient) -> Seen:
    looked = glance(patient)
    if not looked.has_classes:
        return Seen(left_out="labels_are_no_classes")
    if patient.facts.train_pictures is None and not looked.is_whole:
        return Seen(left_out="too_few_to_judge")
    pictures = min(patient.facts.train_pictures or len(looked), len(looked)) if looked.is_whole else None
    pictures = pictures or patient.facts.train_pictures or len(looked)
    distinct = min(pictures, len(set(looked.prints))) if looked.is_whole else pictures
    classes = max(patient.num_classes, 1)
    parameters = sum(one.numel() for one in patient.model.parameters() if one.requires_grad)
    numbers = {
        "pictures": pictures,
        "classes": classes,
        "per_class": distinct / classes,
        "parameters": parameters,
        "ratio": parameters / max(pictures, 1),
    }
    seen = Seen(measured=dict(numbers))
    if distinct / classes >= FEW_PER_CLASS or patient.facts.is_pretrained:
        return seen
    held_out = _held_out(patient)
    if held_out is None:
        seen.notes.append(Note("few_pictures", numbers))
        return seen
    seen.measured["held_out_agreement"] = held_out
    enough = HARDLY_ANY_AGREEMENT if distinct / classes < HARDLY_ANY else FEW_AGREEMENT
    if held_out < enough:
        seen.findings.append(Finding("too_few_images", 0.8, {**numbers, "agreement": held_out}))
    else:
        seen.notes.append(Note("few_pictures", numbers))
    return seen


def _held_out(patient: Patient) -> float | None:
    """Validation labels predicted right from the training pictures, by fixed features."""
    if patient.val is None:
        return None
    train, val = glance(patient), glance(patient, "val")
    labels = train.labels[: len(train.small)]
    if len(labels.unique()) < 2 or len(val.small) < FEW or train.small.shape[1:] != val.small.shape[1:]:
        return None
    if not bool(torch.isin(val.labels, labels).any()):
        return None
    _, held_out = predict_other(train.small, labels, val.small, val.labels[: len(val.small)])
    return held_out.agreement
