"""The examination: every check in order, cheap to dear, until a cause makes the rest meaningless."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from vitscope.core.errors import VitscopeError
from vitscope.doctor.as_it_came import as_it_came
from vitscope.doctor.check import Check
from vitscope.doctor.finding import Finding, Note, Seen, Verdict
from vitscope.doctor.patient import Patient
from vitscope.doctor.thresholds import SURE_ENOUGH

OnCheck = Callable[[str], None]
"""Told the name of the check that begins."""


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
    """What an examination came to."""

    asked: list[Asked] = field(default_factory=list)
    not_asked: list[Check] = field(default_factory=list)
    """Those after a cause that makes them meaningless, and the dear ones of a quick examination."""
    subject: dict[str, Any] = field(default_factory=dict)
    """Who was examined, for the head of the report."""

    @property
    def findings(self) -> list[Finding]:
        """Most likely cause first; of equally likely ones, the earlier found, since later ones often follow from it.
        The same cause is told once, by its surest finding."""
        surest: dict[str, Finding] = {}
        for asked in self.asked:
            for finding in asked.seen.findings:
                if finding.cause not in surest or finding.confidence > surest[finding.cause].confidence:
                    surest[finding.cause] = finding
        return sorted(surest.values(), key=lambda finding: -finding.confidence)

    @property
    def notes(self) -> list[Note]:
        return [note for asked in self.asked for note in asked.seen.notes]

    @property
    def seconds(self) -> float:
        return sum(asked.seconds for asked in self.asked)

    @property
    def verdict(self) -> Verdict:
        if any(finding.confidence >= SURE_ENOUGH for finding in self.findings):
            return "unwell"
        if self.findings or any(asked.failed is not None for asked in self.asked):
            return "cannot tell"
        return "healthy"


def examine(
    patient: Patient,
    checks: Sequence[Check],
    *,
    quick: bool = False,
    on_check: OnCheck | None = None,
    subject: dict[str, Any] | None = None,
) -> Report:
    """Ask them all. The patient is given back as it came, after each."""
    report = Report(subject=dict(subject or {}))
    has_ended = False
    for check in checks:
        if has_ended or (quick and not check.is_quick):
            report.not_asked.append(check)
            continue
        if on_check is not None:
            on_check(check.name)
        asked = _asked(patient, check)
        report.asked.append(asked)
        has_ended = any(finding.ends for finding in asked.seen.findings)
    return report


def _asked(patient: Patient, check: Check) -> Asked:
    """A check that cannot be asked is told, and the next one is asked: a model that fails in one way may still be
    looked at in another."""
    began = time.perf_counter()
    try:
        with as_it_came(patient):
            seen, failed = check.ask(patient), None
    except (VitscopeError, RuntimeError, ValueError, TypeError, IndexError, KeyError, NotImplementedError) as error:
        seen, failed = Seen(), f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no words'}"
    return Asked(check, time.perf_counter() - began, seen, failed)
