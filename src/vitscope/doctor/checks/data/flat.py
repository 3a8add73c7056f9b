"""Is there anything in the pictures, and in each of their channels?"""

from __future__ import annotations

from vitscope.doctor.finding import Finding, Note, Seen
from vitscope.doctor.glance import glance
from vitscope.doctor.patient import Patient
from vitscope.doctor.thresholds.data import FEW, FLAT_SHARE


def flat_pictures(patient: Patient) -> Seen:
    looked = glance(patient)
    flat, pictures = int(looked.is_flat.sum()), len(looked)
    numbers = {"flat": flat, "pictures": pictures, "share": flat / pictures}
    seen = Seen(measured=dict(numbers))
    if flat / pictures >= FLAT_SHARE:
        seen.findings.append(Finding("constant_images", 0.98, numbers, ends=flat == pictures))
        return seen
    if flat:
        seen.notes.append(Note("some_flat_pictures", numbers))
    varies = ((looked.std > 0).any(0) | (looked.mean.amax(0) > looked.mean.amin(0))).tolist()
    dead = [channel for channel, does in enumerate(varies) if not does]
    seen.measured["constant_channels"] = dead
    if dead and pictures >= FEW:
        numbers = {"channels": ", ".join(map(str, dead)), "of": len(varies), "pictures": pictures}
        seen.findings.append(Finding("constant_channel", 0.9, numbers))
    return seen
