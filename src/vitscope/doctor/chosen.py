"""Which checks were asked for, by the names that they and their stages have."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from vitscope.core.errors import InputError, VitscopeError
from vitscope.core.suggest import did_you_mean, plainly


def chosen(
    names: Collection[str],
    checks: Collection[str],
    stages: Sequence[str],
    *,
    where: str = "only",
    refusal: type[VitscopeError] = InputError,
) -> tuple[str, ...]:
    """As they are spelt; one that nothing is called by is refused. A single word is one name."""
    names, known = [names] if isinstance(names, str) else names, [*stages, *checks]
    for name in names:
        if plainly(name) not in known:
            fix = did_you_mean(name, known) or f"checks: {', '.join(known)}"
            raise refusal(f"unknown check '{name}'", where=where, fix=fix)
    return tuple(map(plainly, names))
