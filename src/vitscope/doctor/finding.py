"""What a check found: a cause, how sure it is, and the numbers that show it.

A finding holds no sentences. The cause has them, in every language, with places for the numbers (`causes/`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from vitscope.doctor.picture import Picture

Verdict = Literal["healthy", "unwell", "cannot tell"]


@dataclass(frozen=True)
class Change:
    """A setting of a run and what to make of it: `optim.lr`, 3e-4."""

    key: str
    value: Any


@dataclass(frozen=True)
class Finding:
    """Something that keeps the patient from learning, with measured evidence. A departure from a rule of thumb is none:
    that is a `Note`."""

    cause: str
    """A name of `causes.CAUSES`."""
    confidence: float
    """From 0 to 1: how sure it is that this is so and does harm."""
    numbers: Mapping[str, Any] = field(default_factory=dict)
    """What was measured; fills the cause's sentences."""
    changes: tuple[Change, ...] = ()
    """Settings that mend it, where settings can."""
    picture: Picture | None = None
    ends: bool = False
    """Whether everything after it would be about this cause again."""


@dataclass(frozen=True)
class Note:
    """Worth knowing, nobody's fault: it never makes a patient unwell."""

    name: str
    """A name of `causes.NOTES`."""
    numbers: Mapping[str, Any] = field(default_factory=dict)


class LeftOutError(Exception):
    """A check cannot be made here, for a reason that is a key of `causes.LEFT_OUT`; not a failure of the check."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass
class Seen:
    """What one check saw."""

    measured: dict[str, Any] = field(default_factory=dict)
    """Plain numbers, words and lists of them: they go to JSON as they are."""
    findings: list[Finding] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    picture: Picture | None = None
    """Worth a look even where nothing was found."""
    left_out: str | None = None
    """Why nothing could be looked at here (a key of `causes.LEFT_OUT`), where that is so."""
