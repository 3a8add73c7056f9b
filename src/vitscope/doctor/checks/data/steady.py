"""Does validation show the same pictures every time?"""

from __future__ import annotations

from collections import Counter

import torch

from vitscope.core.seed import seed_everything
from vitscope.doctor.finding import Finding, Seen
from vitscope.doctor.glance import glance, look
from vitscope.doctor.patient import Patient
from vitscope.doctor.thresholds.data import FEW

OTHER_SEED = 3_141_592


def steady_validation(patient: Patient) -> Seen:
    if patient.val is None:
        return Seen(left_out="no_validation_part")
    first = glance(patient, "val")
    # Checks begin from the same random numbers, so the second look would draw what the first drew.
    next(patient.val())
    seed_everything(OTHER_SEED)
    again = look(patient.val, most=len(first))
    count = min(len(first), len(again))
    is_in_order = torch.equal(first.labels[:count], again.labels[:count]) and len(first.labels[:count].unique()) > 1
    if is_in_order:
        changed = sum(one != other for one, other in zip(first.prints[:count], again.prints[:count], strict=True))
    elif first.is_whole and again.is_whole and len(first) == len(again):
        changed = sum((Counter(first.prints) - Counter(again.prints)).values())
    else:
        return Seen(left_out="validation_comes_in_another_order")
    seen = Seen(measured={"pictures": count, "changed": changed})
    if changed > count / 10 and count >= FEW / 2:
        numbers = {"changed": changed, "pictures": count, "share": changed / count}
        seen.findings.append(Finding("validation_augmented", 0.9, numbers))
    return seen
