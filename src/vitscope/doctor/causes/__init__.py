"""Every cause the doctor can name, every note it can make, by stage of the examination."""

from __future__ import annotations

from vitscope.doctor.causes import backward, data, forward, settings, training
from vitscope.doctor.causes.text import Cause, Language, Remark, Text

STAGES = (data, settings, forward, backward, training)
CAUSES: dict[str, Cause] = {cause.name: cause for stage in STAGES for cause in stage.CAUSES}
NOTES: dict[str, Remark] = {note.name: note for stage in STAGES for note in stage.NOTES}
LEFT_OUT: dict[str, Remark] = {reason.name: reason for stage in STAGES for reason in stage.LEFT_OUT}

__all__ = ["CAUSES", "LEFT_OUT", "NOTES", "Cause", "Language", "Remark", "Text"]
