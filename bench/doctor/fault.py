"""A fault: one change to a healthy script, made the way people make it, and the causes that count as its name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from script import Script
from setups import Healthy


@dataclass(frozen=True)
class Fault:
    name: str
    about: str
    """What was done, for the table."""
    right: tuple[str, ...]
    """Causes that name it truly."""
    break_it: Callable[[Script], None]
    needs: tuple[str, ...] = ()
    """Tags a set-up must have for it to mean anything; of words joined by `|` one will do."""
    never: tuple[str, ...] = ()
    """Tags that make it harmless."""
    touches: tuple[str, ...] = ()
    """Of data, model and training, what is no longer as it was."""
    is_listed: bool = True
    """Whether the list the doctor was built against has it."""

    def fits(self, healthy: Healthy) -> bool:
        has_needed = all(any(word in healthy.tags for word in need.split("|")) for need in self.needs)
        return has_needed and not any(word in healthy.tags for word in self.never)


class Faults(dict[str, Fault]):
    """By name, in the order they are defined; those of one place touch that alone, unless they say more."""

    def __init__(self, place: str) -> None:
        super().__init__()
        self.place = place

    def __call__(
        self,
        *right: str,
        needs: tuple[str, ...] = (),
        never: tuple[str, ...] = (),
        also: tuple[str, ...] = (),
        is_listed: bool = True,
    ) -> Callable[[Callable[[Script], None]], Callable[[Script], None]]:
        def register(break_it: Callable[[Script], None]) -> Callable[[Script], None]:
            about = " ".join((break_it.__doc__ or "").split()).rstrip(".")
            self[break_it.__name__] = Fault(
                break_it.__name__, about, right, break_it, needs, never, (self.place, *also), is_listed
            )
            return break_it

        return register
