"""The report for a terminal: the verdict, the findings, the notes, a line for each check that was not fine, and
one for those that were."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from vitscope.doctor.causes.text import Language
from vitscope.doctor.report.told import (
    ToldCheck,
    ToldFinding,
    told_checks,
    told_findings,
    told_notes,
    told_subject,
    told_verdict,
)
from vitscope.doctor.report.words import OUTCOMES, STAGES, VERDICTS, heading
from vitscope.doctor.report.wrap import padded, width_of, wrapped

if TYPE_CHECKING:
    from vitscope.doctor.examination import Report

WIDTH = 80
COLOURS = {"healthy": "bold green", "unwell": "bold red", "cannot tell": "bold yellow"}
OUTCOME_COLOURS = {"found something": "red", "failed": "yellow", "left out": "dim", "not asked": "dim"}
TOGETHER = ("fine", "not asked")
"""Outcomes whose checks are told in one line."""
BETWEEN = "  "


class Line(NamedTuple):
    text: str
    style: str = ""
    """As rich names it; plain text has none."""


def as_text(report: Report, language: Language, *, width: int = WIDTH) -> str:
    return "\n".join(line.text for line in report_lines(report, language, width=width))


def report_lines(report: Report, language: Language, *, width: int = WIDTH) -> Iterator[Line]:
    verdict = VERDICTS[report.verdict].said(language, {})
    stop = ". " if language == "en" else "。"
    for text in wrapped(told_verdict(report, language), width, first=f"{verdict}{stop}", then=BETWEEN):
        yield Line(text, COLOURS[report.verdict])
    between = "; " if language == "en" else "；"
    subject = between.join(f"{name} {value}" for name, value in told_subject(report.subject, language))
    if subject:
        yield from (Line(text, "dim") for text in wrapped(subject, width))
    for number, told in enumerate(told_findings(report, language), start=1):
        yield Line("")
        yield from _finding(number, told, language, width)
    notes = told_notes(report, language)
    if notes:
        yield Line("")
        yield Line(heading("notes", language), "bold")
        for note in notes:
            yield from (Line(text) for text in wrapped(note, width, first="- ", then=BETWEEN))
    checks = told_checks(report, language)
    if checks:
        yield Line("")
        yield from _checks(checks, report.seconds, language, width)


def _finding(number: int, told: ToldFinding, language: Language, width: int) -> Iterator[Line]:
    for text in wrapped(told.title, width, first=f"{number}. ", then="   "):
        yield Line(text, "bold")
    sure = f"({told.sure})" if language == "en" else f"（{told.sure}）"
    yield Line(f"   {told.finding.cause}  {sure}", "dim")
    parts = [(name, getattr(told, name)) for name in ("evidence", "cost", "action", "flags", "effect")]
    names = {name: heading(name, language) for name, _ in parts}
    column = max(map(width_of, names.values()))
    for name, text in parts:
        if text:
            first = f"   {padded(names[name], column)}{BETWEEN}"
            yield from (Line(line) for line in wrapped(text, width, first=first, then=" " * width_of(first)))


def _checks(checks: list[ToldCheck], seconds: float, language: Language, width: int) -> Iterator[Line]:
    total = heading("total", language, seconds=heading("seconds", language, seconds=seconds))
    total = f" ({total})" if language == "en" else f"（{total}）"
    yield Line(f"{heading('checks', language)}{total}", "bold")
    apart = [check for check in checks if check.outcome not in TOGETHER]
    names = max((width_of(check.name) for check in apart), default=0)
    stages = {check.stage: STAGES[check.stage].said(language, {}) for check in apart}
    stage = max(map(width_of, stages.values()), default=0)
    times = {check.name: heading("seconds", language, seconds=check.seconds) for check in apart}
    time = max(map(width_of, times.values()), default=0)
    for check in apart:
        took = times[check.name]
        aligned = " " * (time - width_of(took)) + took
        first = f"{padded(check.name, names)}{BETWEEN}{padded(stages[check.stage], stage)}{BETWEEN}{aligned}{BETWEEN}"
        outcome = OUTCOMES[check.outcome].said(language, {})
        text = outcome if check.reason is None else f"{outcome}{': ' if language == 'en' else '：'}{check.reason}"
        for line in wrapped(text, width, first=first, then=" " * 4):
            yield Line(line, OUTCOME_COLOURS.get(check.outcome, ""))
    for outcome in TOGETHER:
        yield from _together(outcome, [check for check in checks if check.outcome == outcome], language, width)


def _together(outcome: str, checks: list[ToldCheck], language: Language, width: int) -> Iterator[Line]:
    """Their names in a row, of each reason apart; nobody reads forty lines that say the same."""
    comma, colon = (", ", ": ") if language == "en" else ("、", "：")
    for reason in dict.fromkeys(check.reason for check in checks):
        some = [check for check in checks if check.reason == reason]
        took = heading("seconds", language, seconds=sum(check.seconds for check in some))
        many = heading("check alone" if len(some) == 1 else "checks together", language, count=len(some), seconds=took)
        more = many if outcome == "fine" else reason
        after = "" if more is None else f" ({more})" if language == "en" else f"（{more}）"
        text = comma.join(check.name for check in some) + after
        first = OUTCOMES[outcome].said(language, {}) + colon
        for line in wrapped(text, width, first=first, then=BETWEEN):
            yield Line(line, OUTCOME_COLOURS.get(outcome, ""))
