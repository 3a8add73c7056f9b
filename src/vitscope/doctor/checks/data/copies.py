"""How many different pictures are there?"""

from __future__ import annotations

from vitscope.doctor.checks.data.plain import is_varied
from vitscope.doctor.checks.data.stored import stored_part
from vitscope.doctor.finding import Finding, Seen
from vitscope.doctor.glance import glance
from vitscope.doctor.patient import Patient
from vitscope.doctor.thresholds.data import DISTINCT_SHARE, FEW


def copies(patient: Patient) -> Seen:
    looked = glance(patient)
    pictures, distinct = len(looked), len(set(looked.prints))
    if pictures < FEW:
        return Seen(left_out="too_few_to_judge")
    if patient.dataset is not None and is_varied(patient):  # copies may look different
        pictures, distinct = stored_part(patient, patient.dataset, "train").distinct
        if pictures < FEW:  # that could be read
            return Seen(left_out="too_few_to_judge")
    seen = Seen(measured={"pictures": pictures, "distinct": distinct})
    if distinct <= DISTINCT_SHARE * pictures:
        numbers = {"pictures": pictures, "distinct": distinct, "times": pictures / max(distinct, 1)}
        seen.findings.append(Finding("duplicate_only_data", 0.92, numbers))
    return seen
