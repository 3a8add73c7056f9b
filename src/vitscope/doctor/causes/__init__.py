"""Every cause the doctor can name, every note it can make, by stage of the examination."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vitscope.doctor.causes import backward, data, forward, settings, training
from vitscope.doctor.causes.text import Cause, Language, Remark, Text

STAGES = (data, settings, forward, backward, training)
WAYS: dict[str, list[Cause]] = {}
"""A cause may be seen at several stages, each with numbers, and so sentences, of its own."""
for _stage in STAGES:
    for _cause in _stage.CAUSES:
        WAYS.setdefault(_cause.name, []).append(_cause)
CAUSES: dict[str, Cause] = {name: ways[0] for name, ways in WAYS.items()}
NOTES: dict[str, Remark] = {note.name: note for stage in STAGES for note in stage.NOTES}
LEFT_OUT: dict[str, Remark] = {reason.name: reason for stage in STAGES for reason in stage.LEFT_OUT}


def cause_for(name: str, numbers: Mapping[str, Any]) -> Cause:
    """The cause in the sentences that these numbers fill."""
    return next((way for way in WAYS.get(name, ()) if way.places <= set(numbers)), CAUSES[name])


__all__ = ["CAUSES", "LEFT_OUT", "NOTES", "Cause", "Language", "Remark", "Text", "cause_for"]
