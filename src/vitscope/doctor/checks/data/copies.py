"""How many different pictures are there?

Where a loader varies them and nothing else is known, copies are looked for as crops of each other.
"""

from __future__ import annotations

from vitscope.doctor.checks.data.cropped import times_cropped
from vitscope.doctor.checks.data.plain import is_varied
from vitscope.doctor.checks.data.stored import stored_part
from vitscope.doctor.finding import Finding, Seen
from vitscope.doctor.glance import Glance, glance
from vitscope.doctor.patient import Patient
from vitscope.doctor.thresholds.data import COPIES_SOUGHT, DISTINCT_SHARE, FEW


def copies(patient: Patient) -> Seen:
    looked = glance(patient)
    pictures, distinct = len(looked), len(set(looked.prints))
    if pictures < FEW:
        return Seen(left_out="too_few_to_judge")
    if patient.dataset is not None and is_varied(patient):  # copies may look different
        pictures, distinct = stored_part(patient, patient.dataset, "train").distinct
        if pictures < FEW:  # that could be read
            return Seen(left_out="too_few_to_judge")
    elif patient.dataset is None and is_varied(patient) is not False and distinct > DISTINCT_SHARE * pictures:
        pictures, distinct = _as_crops(looked)
    seen = Seen(measured={"pictures": pictures, "distinct": distinct})
    if distinct <= DISTINCT_SHARE * pictures:
        numbers = {"pictures": pictures, "distinct": distinct, "times": pictures / max(distinct, 1)}
        seen.findings.append(Finding("duplicate_only_data", 0.92, numbers))
    return seen


def _as_crops(looked: Glance) -> tuple[int, int]:
    """Pictures that were compared, and about how many different ones: of each there are as many as of those that are
    looked for, in the middle."""
    sought, others = looked.small[:COPIES_SOUGHT], looked.small[COPIES_SOUGHT:]
    if len(others) < FEW:
        return len(looked), len(set(looked.prints))
    times = times_cropped(others, sought, most=len(others))
    copies = float(times.float().median()) if len(times) >= FEW else 0.0
    return len(others), round(len(others) / max(copies, 1.0))
