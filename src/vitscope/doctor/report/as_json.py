"""The report for programs: plain data, in which NaN and the infinities are words, as in metrics.jsonl."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from vitscope.core.strict_json import encode
from vitscope.doctor.causes import NOTES
from vitscope.doctor.causes.text import Language
from vitscope.doctor.picture import Picture
from vitscope.doctor.report.told import told_checks, told_findings, told_verdict

if TYPE_CHECKING:
    from vitscope.doctor.examination import Report


def as_json(report: Report, language: Language) -> dict[str, Any]:
    """Names (verdict, cause, check, outcome) are the same in every language; sentences are in the one asked for."""
    found = [
        {
            "cause": told.finding.cause,
            "confidence": told.finding.confidence,
            "sureness": told.sure,
            "title": told.title,
            "evidence": told.evidence,
            "numbers": told.finding.numbers,
            "cost": told.cost,
            "action": told.action,
            "effect": told.effect,
            "changes": [{"key": change.key, "value": change.value} for change in told.finding.changes],
            "picture": _picture(told.finding.picture),
        }
        for told in told_findings(report, language)
    ]
    notes = [
        {"name": note.name, "text": NOTES[note.name].text.said(language, note.numbers), "numbers": note.numbers}
        for note in report.notes
    ]
    checks = [
        {
            "name": check.name,
            "stage": check.stage,
            "outcome": check.outcome,
            "seconds": round(check.seconds, 3),
            "measured": check.measured,
            "reason": check.reason,
        }
        for check in told_checks(report, language)
    ]
    whole = {
        "verdict": report.verdict,
        "sentence": told_verdict(report, language),
        "findings": found,
        "notes": notes,
        "checks": checks,
        "subject": report.subject,
        "seconds": round(report.seconds, 3),
    }
    return encode(plain(whole))


def plain(value: Any) -> Any:
    """What a check measured, as JSON knows it: tensors and arrays become lists, whatever else its words."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int | float):
        return int(value) if isinstance(value, int) else float(value)  # NumPy's float is a float to Python, too
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, Set):
        return sorted((plain(item) for item in value), key=str)
    if isinstance(value, list | tuple | range):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    return str(value)


def _picture(picture: Picture | None) -> dict[str, Any] | None:
    """The numbers a plot is drawn from."""
    return None if picture is None else asdict(picture)
