"""How long something lasts: "500 steps", "5 epochs" or "10 %" of the run."""

from __future__ import annotations

import re

from vitscope.core.config import require

_PATTERN = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*(steps?|epochs?|%)\s*")


def require_duration(name: str, text: str) -> None:
    match = _PATTERN.fullmatch(text)
    wanted = "a length such as '500 steps', '5 epochs' or '10 %'"
    require(
        match is not None, name, wanted, repr(text), fix=f"did you mean '{text} steps'?" if text.isdigit() else None
    )
    if match is not None and match[2] == "%":
        require(float(match[1]) <= 100, name, "at most 100 %", repr(text))


def duration_parts(text: str) -> tuple[float, str]:
    """How many, and of what: 'steps', 'epochs' or '%'."""
    match = _PATTERN.fullmatch(text)
    if match is None:
        require_duration("duration", text)
        return 0.0, "steps"
    return float(match[1]), match[2] if match[2] == "%" else match[2].rstrip("s") + "s"


def duration_steps(text: str, *, steps_per_epoch: int, total_steps: int) -> int:
    """The length in whole steps."""
    number, unit = duration_parts(text)
    if unit == "%":
        return round(number / 100 * total_steps)
    return round(number * (steps_per_epoch if unit == "epochs" else 1))
