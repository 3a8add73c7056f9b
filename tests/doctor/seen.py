"""Small words the doctor's tests share."""

from __future__ import annotations

from vitscope.doctor.causes import LEFT_OUT, NOTES, cause_for
from vitscope.doctor.finding import Seen


def causes(seen: Seen) -> list[str]:
    """Names of what was found, surest first; every sentence of each can be said in both languages."""
    for finding in seen.findings:
        cause = cause_for(finding.cause, finding.numbers)
        for text in (cause.title, cause.evidence, cause.cost, cause.action, cause.effect):
            assert text.said("en", finding.numbers)
            assert text.said("zh", finding.numbers)
            assert "{" not in text.said("en", finding.numbers) + text.said("zh", finding.numbers)
        assert 0 < finding.confidence <= 1
    for note in seen.notes:
        assert NOTES[note.name].text.said("en", note.numbers)
        assert NOTES[note.name].text.said("zh", note.numbers)
    assert seen.left_out is None or seen.left_out in LEFT_OUT
    return [finding.cause for finding in sorted(seen.findings, key=lambda one: -one.confidence)]


def notes(seen: Seen) -> list[str]:
    return [note.name for note in seen.notes]
