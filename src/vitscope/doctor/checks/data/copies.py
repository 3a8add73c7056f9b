"""How many different pictures are there?"""

from __future__ import annotations

from vitscope.data.survey.survey import Survey
from vitscope.doctor.checks.data.plain import is_varied, plain_survey
from vitscope.doctor.finding import Finding, Seen
from vitscope.doctor.glance import glance
from vitscope.doctor.patient import Patient
from vitscope.doctor.thresholds.data import DISTINCT_SHARE, FEW


def copies(patient: Patient) -> Seen:
    looked = glance(patient)
    pictures, distinct = len(looked), len(set(looked.prints))
    if pictures < FEW:
        return Seen(left_out="too_few_to_judge")
    if distinct == pictures and patient.dataset is not None and is_varied(patient):  # each copy may look different
        found = plain_survey(patient, patient.dataset)
        within = found.duplicates.within["train"]
        pictures = _training_ones(found)
        distinct = pictures - within
    seen = Seen(measured={"pictures": pictures, "distinct": distinct})
    if distinct <= DISTINCT_SHARE * pictures:
        numbers = {"pictures": pictures, "distinct": distinct, "times": pictures / max(distinct, 1)}
        seen.findings.append(Finding("duplicate_only_data", 0.92, numbers))
    return seen


def _training_ones(found: Survey) -> int:
    """Training pictures among those looked at, which are spread evenly."""
    return max(1, round(sum(found.counts["train"]) * found.looked_at / max(found.total, 1)))
