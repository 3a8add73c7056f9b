"""Has BatchNorm a batch to take means over?"""

from __future__ import annotations

from torch import nn

from vitscope.doctor.finding import Change, Finding, Note, Seen
from vitscope.doctor.patient import Patient

FEW = 4


def lone_batch(patient: Patient) -> Seen:
    norms = [one for one in patient.model.modules() if isinstance(one, nn.modules.batchnorm._BatchNorm)]
    size = patient.facts.batch_size
    if not norms or size is None:
        return Seen(left_out="no_batch_norm")
    at_once = -(-size // (patient.facts.accumulation or 1))
    numbers = {"batch": at_once, "norms": len(norms)}
    seen = Seen(measured=dict(numbers))
    if at_once == 1:
        changes = ()
        if patient.settings is not None:
            changes = (Change("data.batch_size", 64), Change("loop.micro_batch", None))
        seen.findings.append(Finding("batch_of_one_with_batchnorm", 0.95, numbers, changes))
    elif at_once < FEW:
        seen.notes.append(Note("small_batch_with_batchnorm", numbers))
    return seen
