"""Are there enough updates to learn anything in?"""

from __future__ import annotations

from vitscope.doctor.finding import Note, Seen
from vitscope.doctor.patient import Patient
from vitscope.doctor.thresholds.settings import FEW_UPDATES


def updates(patient: Patient) -> Seen:
    """A word, never a fault: a first try may be short on purpose."""
    facts = patient.facts
    if facts.epochs is None or facts.steps_per_epoch is None:
        return Seen(left_out="length_unknown")
    numbers = {"updates": facts.epochs * facts.steps_per_epoch, "epochs": facts.epochs}
    seen = Seen(measured=dict(numbers))
    if numbers["updates"] < FEW_UPDATES and not facts.is_pretrained:
        seen.notes.append(Note("few_updates", numbers))
    return seen
