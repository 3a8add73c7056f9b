"""Has each class its share of the pictures?"""

from __future__ import annotations

import torch

from vitscope.doctor.checks.data.missing import missing
from vitscope.doctor.finding import Change, Finding, Note, Seen
from vitscope.doctor.glance import glance
from vitscope.doctor.patient import Patient
from vitscope.doctor.picture import Line, Picture
from vitscope.doctor.thresholds.data import FEW, IMBALANCE, IMBALANCE_NOTE, MAJORITY


def class_balance(patient: Patient) -> Seen:
    looked = glance(patient)
    if not looked.has_classes:
        return Seen(left_out="labels_are_no_classes")
    labels = looked.labels[looked.labels >= 0]
    counts = torch.bincount(labels)
    if len(labels) < 4 * FEW or int((counts > 0).sum()) < 2:
        return Seen(left_out="too_few_to_judge")
    if not looked.is_whole and len(labels) < 100 * patient.num_classes:
        return Seen(left_out="too_few_to_judge")
    least, largest = int(counts[counts > 0].min()), int(counts.max())
    names = _names(patient, len(counts))
    ratio, share = largest / least, largest / len(labels)
    numbers = {
        "ratio": ratio,
        "share": share,
        "least": least,
        "largest": largest,
        "rare": names[int(counts.where(counts > 0, counts.max() + 1).argmin())],
        "frequent": names[int(counts.argmax())],
    }
    bars = Line("pictures", [str(n) for n in range(len(counts))], [float(count) for count in counts])
    picture = Picture("Training pictures of each class", "class", "pictures", [bars], kind="bars", log_y=ratio > 100)
    seen = Seen(measured={**numbers, "counts": counts.tolist()}, picture=picture)
    absent = missing(patient, looked)
    if isinstance(absent, Finding):
        seen.findings.append(absent)
    elif absent is not None:
        seen.notes.append(absent)
    is_weighed = patient.settings is not None and patient.settings.loss.class_balance > 0
    is_weighed |= getattr(patient.loss, "weight", None) is not None  # torch's losses have class weights there
    is_extreme = share >= MAJORITY or (ratio >= IMBALANCE and largest >= FEW)
    if is_extreme and not is_weighed:
        changes = (Change("data.sampling", "balanced"),) if patient.settings is not None else ()
        if patient.settings is not None and patient.settings.data.repeats > 1:
            changes = (*changes, Change("data.repeats", 1))
        seen.findings.append(Finding("class_imbalance", 0.85, numbers, changes, picture))
    elif ratio >= IMBALANCE_NOTE:
        seen.notes.append(Note("classes_unequal", numbers))
    return seen


def _names(patient: Patient, count: int) -> list[str]:
    """Of classes: their numbers, and what the pictures call them, where that is another word."""
    known = () if patient.dataset is None else patient.dataset.class_names
    return [
        f"{number} ('{known[number]}')" if number < len(known) and known[number] != str(number) else str(number)
        for number in range(count)
    ]
