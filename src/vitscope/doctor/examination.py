"""The examination: every check in order, cheapest first, until a cause makes the rest meaningless."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from vitscope.doctor.causes.text import Language
from vitscope.doctor.check import Check
from vitscope.doctor.evidence import picture_of_numbers
from vitscope.doctor.finding import Finding, LeftOutError, Note, Seen, Verdict
from vitscope.doctor.thresholds.whole import NO_NEED_TO_TRAIN, SURE_ENOUGH

if TYPE_CHECKING:
    from vitscope.doctor.patient import Patient

OnCheck = Callable[[str], None]
"""Told the name of the check that begins."""
WhyNot = Literal["ended", "quick", "not chosen", "on request"]
"""An earlier cause makes it meaningless; there is no time for it; others were asked for; it waits to be."""

AFTER_TRAINING = ("test_leaked",)
"""Causes that training cannot show: it never meets the test part."""


@dataclass(frozen=True)
class Asked:
    """One check, as it went."""

    check: Check
    seconds: float
    seen: Seen
    failed: str | None = None
    """Why it could not be asked, where it could not."""

    @property
    def outcome(self) -> str:
        if self.failed is not None:
            return "failed"
        if self.seen.left_out is not None:
            return "left out"
        return "found something" if self.seen.findings else "fine"


@dataclass
class Report:
    """What an examination came to. `print(report)` shows it as the command line does."""

    asked: list[Asked] = field(default_factory=list)
    not_asked: list[Check] = field(default_factory=list)
    """Those after a cause that makes them meaningless, and the dear ones of a quick examination."""
    why_not: dict[str, WhyNot] = field(default_factory=dict)
    """Name of a check that was not asked -> why."""
    subject: dict[str, Any] = field(default_factory=dict)
    """Who was examined, for the head of the report."""
    needed: tuple[str, ...] = ()
    """Checks without whose answer nobody is called healthy."""

    def __str__(self) -> str:
        return self.as_text()

    def as_text(self, *, language: Language = "en") -> str:
        """For a terminal of 80 columns."""
        from vitscope.doctor.report.text import as_text

        return as_text(self, language)

    def as_json(self, *, language: Language = "en") -> dict[str, Any]:
        """Plain data that strict JSON can hold."""
        from vitscope.doctor.report.as_json import as_json

        return as_json(self, language)

    def save_page(self, path: str | Path, *, language: Language = "en") -> Path:
        """One HTML page with pictures, complete in itself."""
        from vitscope.doctor.report.page import save_page

        return save_page(self, path, language)

    @property
    def findings(self) -> list[Finding]:
        """Most likely cause first; of equally likely ones, the earlier found, since later ones often follow from it.
        The same cause is told once, by its surest finding."""
        surest: dict[str, Finding] = {}
        for asked in self.asked:
            for finding in asked.seen.findings:
                if finding.cause not in surest or finding.confidence > surest[finding.cause].confidence:
                    surest[finding.cause] = finding
        surest = {
            cause: one if one.picture is not None else replace(one, picture=picture_of_numbers(one))
            for cause, one in surest.items()
        }
        return sorted(surest.values(), key=lambda finding: -finding.confidence)

    @property
    def notes(self) -> list[Note]:
        """What two checks note is told as the first one saw it; the tuning guide's comes last."""
        from vitscope.doctor.report.notes import told

        return told([note for asked in self.asked for note in asked.seen.notes], self.findings)

    @property
    def seconds(self) -> float:
        return sum(asked.seconds for asked in self.asked)

    @property
    def has_looked(self) -> bool:
        """Whether any check could be made."""
        return any(asked.failed is None and asked.seen.left_out is None for asked in self.asked)

    @property
    def verdict(self) -> Verdict:
        if any(finding.confidence >= SURE_ENOUGH for finding in self.findings):
            return "unwell"
        # A step that never moves a weight may be at fault, or collect gradients for long: neither is health.
        is_unanswered = any(
            one.seen.left_out == "no_update_came" or (one.seen.left_out is not None and one.check.name in self.needed)
            for one in self.asked
        )
        has_failed = any(asked.failed is not None for asked in self.asked)
        if self.findings or not self.has_looked or has_failed or is_unanswered:
            return "cannot tell"
        return "healthy"


def examine(
    patient: Patient,
    checks: Sequence[Check],
    *,
    quick: bool = False,
    only: Collection[str] = (),
    on_check: OnCheck | None = None,
    subject: dict[str, Any] | None = None,
) -> Report:
    """Ask them all, or `only` those of these names or stages. The patient is given back as it came, after each."""
    report = Report(subject=dict(subject or {}))
    patient.is_quick = quick
    has_ended = False
    for check in checks:
        is_chosen = check.name in only
        why: WhyNot | None = None
        if only and not is_chosen and check.stage not in only:
            why = "not chosen"
        elif has_ended or (check.stage == "training" and not only and _is_known(report)):
            why = "ended"
        elif check.on_request and not is_chosen:
            why = "on request"
        elif quick and not check.is_quick and not is_chosen:
            why = "quick"
        if why is not None:
            report.not_asked.append(check)
            report.why_not[check.name] = why
            continue
        if on_check is not None:
            on_check(check.name)
        asked = _asked(patient, check)
        report.asked.append(asked)
        has_ended = any(finding.ends for finding in asked.seen.findings)
    return report


def _is_known(report: Report) -> bool:
    """Whether a cause is as sure as training could make it. Settings never are: they may hurt less than it seems."""
    causes = [one for asked in report.asked if asked.check.stage != "settings" for one in asked.seen.findings]
    return any(one.confidence >= NO_NEED_TO_TRAIN and one.cause not in AFTER_TRAINING for one in causes)


def _asked(patient: Patient, check: Check) -> Asked:
    """A check that cannot be asked is told, and the next one is asked: a model that fails in one way may still be
    looked at in another."""
    from vitscope.doctor.as_it_came import as_it_came  # torch comes with it; a run's report does without

    began = time.perf_counter()
    try:
        with as_it_came(patient):
            seen, failed = check.ask(patient), None
    except LeftOutError as here:
        seen, failed = Seen(left_out=here.reason), None
    except Exception as error:  # the owner's code runs in here, and may raise anything
        seen, failed = Seen(), f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}"
    return Asked(check, time.perf_counter() - began, seen, failed)
