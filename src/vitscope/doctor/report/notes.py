"""Which notes are told, and in which order: what a finding has settled is not argued about below it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from vitscope.doctor.finding import Finding, Note

GUIDE = "guide_differs"
GIVES_WAY = {"lr_bold_for_fine_tuning": "optim.lr"}
"""Notes that name a figure for a setting: silent where a finding has one, which was measured."""
ABOUT = {
    "dropout_too_high": ("model.drop_rate", "model.drop_path_rate"),
    "weight_decay_too_high": ("optim.weight_decay",),
}
"""Causes that are about a setting and say what to make of it, also where there is no setting to change, as of a model
that came from Python."""


def told(notes: Sequence[Note], findings: Sequence[Finding]) -> list[Note]:
    """Each name once, as the first check saw it; the tuning guide's, which weighs least, comes last."""
    settled = {change.key for finding in findings for change in finding.changes}
    settled |= {key for finding in findings for key in ABOUT.get(finding.cause, ())}
    first = {note.name: note for note in reversed(notes) if GIVES_WAY.get(note.name) not in settled}
    ordered = [first[name] for name in dict.fromkeys(note.name for note in notes) if name in first and name != GUIDE]
    guide = _guide(first.get(GUIDE), settled)
    return [*ordered, *([] if guide is None else [guide])]


def _guide(note: Note | None, settled: set[str]) -> Note | None:
    """In one line, without the settings that a finding changes or is about."""
    advice = {} if note is None else {key: said for key, said in note.numbers["advice"].items() if key not in settled}
    if note is None or not advice:
        return None
    return replace(note, numbers={**note.numbers, "departures": ", ".join(advice.values())})
