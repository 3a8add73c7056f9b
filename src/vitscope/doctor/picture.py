"""A picture as numbers: drawn by the report, so that a check needs no drawing library and JSON can carry it too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Line:
    """A curve, or bars where the picture has bars."""

    label: str
    x: Sequence[float] | Sequence[str]
    y: Sequence[float]


@dataclass(frozen=True)
class Picture:
    """Labels are English in every language."""

    title: str
    x: str
    y: str
    lines: Sequence[Line]
    kind: Literal["lines", "bars"] = "lines"
    log_x: bool = False
    log_y: bool = False
    level: float | None = None
    """A horizontal line to hold the rest against."""
    mark: float | None = None
    """A vertical line: where it happened."""
