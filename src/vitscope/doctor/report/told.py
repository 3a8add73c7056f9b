"""A report in sentences of one language: what text, JSON and page all show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vitscope.doctor.causes import LEFT_OUT, NOTES, Language, cause_for
from vitscope.doctor.finding import Change, Finding
from vitscope.doctor.picture import Picture
from vitscope.doctor.report.words import STATES, SUBJECT, VERDICT_SENTENCES, WHY_NOT, heading, sureness

if TYPE_CHECKING:
    from vitscope.doctor.examination import Asked, Report


@dataclass(frozen=True)
class ToldFinding:
    """A finding with the sentences of its cause."""

    finding: Finding
    title: str
    evidence: str
    cost: str
    action: str
    effect: str
    sure: str
    """In words and as a number."""

    @property
    def flags(self) -> str:
        """What it changes, as it is typed."""
        return " ".join(as_flag(change) for change in self.finding.changes)


@dataclass(frozen=True)
class ToldCheck:
    name: str
    stage: str
    outcome: str
    """A key of `words.OUTCOMES`."""
    seconds: float
    measured: Mapping[str, Any]
    reason: str | None
    """Why it was not asked, left out, or failed."""
    picture: Picture | None


def told_findings(report: Report, language: Language) -> list[ToldFinding]:
    return [_told(finding, language) for finding in report.findings]


def told_notes(report: Report, language: Language) -> list[str]:
    """Each once, however many checks made it."""
    said = (NOTES[note.name].text.said(language, note.numbers) for note in report.notes)
    return list(dict.fromkeys(said))


def told_checks(report: Report, language: Language) -> list[ToldCheck]:
    """Those that were asked, then those that were not, each with its reason."""
    asked = [
        ToldCheck(
            one.check.name,
            one.check.stage,
            one.outcome,
            one.seconds,
            one.seen.measured,
            _reason(one, language),
            one.seen.picture,
        )
        for one in report.asked
    ]
    others = [
        ToldCheck(check.name, check.stage, "not asked", 0.0, {}, _why_not(report, check.name, language), None)
        for check in report.not_asked
    ]
    return [*asked, *others]


def told_verdict(report: Report, language: Language) -> str:
    """The sentence beside the verdict."""
    kind = report.verdict
    titles = {}
    if kind == "unwell":
        titles["title"] = _told(report.findings[0], language).title
    elif kind == "cannot tell" and not report.findings:
        kind = "failed" if report.has_looked else "nothing asked"
    return VERDICT_SENTENCES[kind].said(language, titles)


def told_subject(subject: Mapping[str, Any], language: Language) -> list[tuple[str, str]]:
    """Name and value of everything that is known of the patient."""
    return [
        (
            SUBJECT[name].said(language, {}) if name in SUBJECT else name.replace("_", " "),
            f"{value:.1%}" if name.endswith("_accuracy") else _said(value, language),
        )
        for name, value in subject.items()
        if value is not None
    ]


def as_flag(change: Change) -> str:
    """--optim.lr 0.0003; of a switch, --model.no-class-token."""
    section, dot, leaf = change.key.replace("_", "-").rpartition(".")
    if isinstance(change.value, bool):
        return f"--{section}{dot}{'' if change.value else 'no-'}{leaf}"
    values: Sequence[Any] = change.value if isinstance(change.value, list | tuple) else (change.value,)
    return " ".join([f"--{section}{dot}{leaf}", *(_shown(value, thousands=False) for value in values)])


def _told(finding: Finding, language: Language) -> ToldFinding:
    cause, numbers = cause_for(finding.cause, finding.numbers), finding.numbers
    return ToldFinding(
        finding,
        title=cause.title.said(language, numbers),
        evidence=cause.evidence.said(language, numbers),
        cost=cause.cost.said(language, numbers),
        action=cause.action.said(language, numbers),
        effect=cause.effect.said(language, numbers),
        sure=sureness(finding.confidence, language),
    )


def _reason(asked: Asked, language: Language) -> str | None:
    if asked.failed is not None:
        return asked.failed
    key = asked.seen.left_out
    if key is None:
        return None
    return LEFT_OUT[key].text.said(language, asked.seen.measured) if key in LEFT_OUT else key


def _why_not(report: Report, name: str, language: Language) -> str | None:
    return WHY_NOT[report.why_not[name]].said(language, {}) if name in report.why_not else None


def _said(value: Any, language: Language) -> str:
    if isinstance(value, bool):
        return heading("yes" if value else "no", language)
    if isinstance(value, str):
        return STATES[value].said(language, {}) if value in STATES else value
    return "; ".join(map(str, value)) if isinstance(value, list | tuple) else _shown(value)


def _shown(value: Any, *, thousands: bool = True) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if thousands and isinstance(value, int) and not isinstance(value, bool) else str(value)
