"""Classes that validation has and training never shows. Only of loaders: our data sets with such parts are refused."""

from __future__ import annotations

import torch
from torch import Tensor

from vitscope.doctor.finding import Finding, Note
from vitscope.doctor.glance import Glance, glance
from vitscope.doctor.patient import Patient
from vitscope.doctor.thresholds.data import MISSING_EXPECTED, MISSING_PICTURES

NAMED = 5
"""Classes that a sentence lists."""


def missing(patient: Patient, train: Glance) -> Finding | Note | None:
    """Validation proves that the model is to know them: an output alone may be a spare one."""
    if patient.val is None:
        return None
    val = glance(patient, "val")
    is_even = _is_even(train.labels)
    if not val.has_classes or not (train.is_whole or is_even):
        return None
    counts, known = (_counts(one.labels, patient.num_classes) for one in (val, train))
    absent = ((counts > 0) & (known == 0)).nonzero().flatten()
    # As many as training would have shown by now, if it had the class as often as validation.
    expected = counts.double() * len(train) / len(val)
    if not train.is_whole:
        absent = absent[expected[absent] >= MISSING_EXPECTED]
    if not len(absent):
        return None
    # What comes to an end may still be a part, as some files of a stream that is sorted.
    is_known = (patient.is_by_lot or (train.is_whole and is_even)) and val.is_whole
    is_sure = (counts[absent] >= MISSING_PICTURES) & (expected[absent] >= MISSING_EXPECTED)
    is_other_task = 2 * len(absent) > int((counts > 0).sum())
    if is_known and bool(is_sure.any()) and not is_other_task:
        return Finding("class_missing", 0.8, _numbers(absent[is_sure], counts, train))
    return Note("class_not_in_training", _numbers(absent, counts, train))


def _numbers(absent: Tensor, counts: Tensor, train: Glance) -> dict[str, object]:
    names = ", ".join(map(str, absent[:NAMED].tolist())) + (", ..." if len(absent) > NAMED else "")
    return {"classes": names, "missing": len(absent), "pictures": int(counts[absent].sum()), "looked": len(train)}


def _counts(labels: Tensor, classes: int) -> Tensor:
    """Of classes that an output stands for."""
    return torch.bincount(labels[(labels >= 0) & (labels < classes)], minlength=classes)


def _is_even(labels: Tensor) -> bool:
    """Whether each class that comes more than a few times does so early and late: others may not have come yet where
    they come one after another."""
    half = len(labels) // 2
    early, late = (
        torch.bincount(one.clamp(min=0), minlength=int(labels.max()) + 1)
        for one in labels.split([half, len(labels) - half])
    )
    often = early + late >= MISSING_EXPECTED
    return bool(((early > 0) & (late > 0))[often].all())
