"""Which class an explanation is about."""

from __future__ import annotations

from collections.abc import Sequence

from vitscope.core.errors import UsageError, expected
from vitscope.core.suggest import did_you_mean


def chosen_class(target: int | str, labels: Sequence[str]) -> int:
    """A class's number from its number or its label; where a text is both, the label counts."""
    if isinstance(target, str) and target in labels:
        return list(labels).index(target)
    if isinstance(target, str) and target.isdecimal():
        target = int(target)
    if isinstance(target, int) and 0 <= target < len(labels):
        return target
    wanted = f"a label, or a number from 0 to {len(labels) - 1}"
    near = did_you_mean(target, labels) if isinstance(target, str) else None
    known = ", ".join(labels[:5]) + (" ..." if len(labels) > 5 else "")
    raise UsageError(expected("target", wanted, repr(target)), where="explain", fix=near or f"labels: {known}")
