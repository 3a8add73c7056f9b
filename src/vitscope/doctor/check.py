"""One question to the patient: a name, a stage, and a function that answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from vitscope.doctor.finding import Seen

if TYPE_CHECKING:
    from vitscope.doctor.patient import Patient

Stage = Literal["data", "settings", "forward", "backward", "training"]


@dataclass(frozen=True)
class Check:
    """`ask` may train the patient: it is put back afterwards, every time."""

    name: str
    stage: Stage
    ask: Callable[[Patient], Seen]
    is_quick: bool = True
    """Whether a quick examination has time for it."""
    on_request: bool = False
    """Only where it is asked for by its name: a comparison, and no part of an examination."""
