"""Do labels and outputs count the same classes?"""

from __future__ import annotations

import torch
from torch import Tensor

from vitscope.doctor.finding import Finding, Note, Seen
from vitscope.doctor.glance import glance
from vitscope.doctor.patient import Patient
from vitscope.doctor.thresholds.data import FEW

IGNORED = -100
"""torch's cross-entropy leaves these out."""


def label_range(patient: Patient) -> Seen:
    train = glance(patient)
    if not train.has_classes:
        return Seen(left_out="labels_are_no_classes")
    val = None if patient.val is None else glance(patient, "val")
    outputs = _outputs(patient)
    if outputs < 2:
        return Seen(left_out="one_output")
    labels = _wanted(train.labels)
    if not len(labels):
        return Seen(left_out="labels_are_no_classes")
    if val is not None and val.has_classes and not _wrong(labels, outputs):  # what is wrong in both is seen in training
        labels = torch.cat([labels, _wanted(val.labels)])
    occurring = labels.unique()
    least, largest, classes = int(occurring[0]), int(occurring[-1]), len(occurring)
    wrong = _wrong(labels, outputs)
    numbers = {
        "least": least,
        "largest": largest,
        "classes": classes,
        "outputs": outputs,
        "wrong": wrong,
        "pictures": len(labels),
    }
    seen = Seen(measured=dict(numbers))
    if wrong:
        has_no_gap = least == 0 and classes == largest + 1
        if least == 1 and largest == outputs:
            seen.findings.append(Finding("labels_off_by_one", 0.99, numbers, ends=True))
        elif has_no_gap and wrong > 1:
            seen.findings.append(Finding("num_classes_wrong", 0.99, numbers, ends=True))
        seen.findings.append(Finding("labels_out_of_range", 0.98 if seen.findings else 1.0, numbers, ends=True))
        return seen
    if len(labels) < FEW or not _has_seen_all(train.is_whole, len(labels), outputs):
        return seen
    if least == 1:
        seen.findings.append(Finding("labels_off_by_one", 0.8, numbers))
    if classes < outputs and (largest < outputs - 1 or least == 1):
        sure = 0.9 if largest < outputs - 1 and least == 0 else 0.7
        seen.findings.append(Finding("num_classes_wrong", sure, numbers))
    elif classes < outputs:
        seen.notes.append(Note("classes_without_pictures", numbers))
    return seen


def _wanted(labels: Tensor) -> Tensor:
    return labels[labels != IGNORED]


def _wrong(labels: Tensor, outputs: int) -> int:
    return int(((labels < 0) | (labels >= outputs)).sum())


def _has_seen_all(is_whole: bool, pictures: int, outputs: int) -> bool:
    """A class of a usual share that is not among so many pictures does not exist."""
    return is_whole or pictures >= 100 * outputs


def _outputs(patient: Patient) -> int:
    images, _ = patient.sample(2)
    patient.model.eval()
    with torch.no_grad():
        return int(patient.logits(images.float() if images.dtype == torch.uint8 else images).shape[-1])
