"""What makes a unit worth keeping: one file a criterion, all by one table."""

from __future__ import annotations

from collections.abc import Callable

from vitscope.core.errors import UsageError, expected
from vitscope.core.suggest import did_you_mean
from vitscope.sparse.choose import Scores
from vitscope.sparse.criteria.activation import l1, l2
from vitscope.sparse.criteria.evidence import Evidence
from vitscope.sparse.criteria.magnitude import magnitude
from vitscope.sparse.criteria.random_draw import random_draw
from vitscope.sparse.criteria.remain import remain
from vitscope.sparse.criteria.saliency import saliency

Criterion = Callable[[Evidence], Scores]
"""From what is known of a trained network to a score for each unit: the higher, the sooner it is kept."""

CRITERIA: dict[str, Criterion] = {
    "remain": remain,
    "magnitude": magnitude,
    "l1": l1,
    "l2": l2,
    "saliency": saliency,
    "random": random_draw,
}


def criterion(name: str) -> Criterion:
    if name not in CRITERIA:
        raise UsageError(
            expected("criterion", f"one of {', '.join(CRITERIA)}", repr(name)), fix=did_you_mean(name, CRITERIA)
        )
    return CRITERIA[name]
