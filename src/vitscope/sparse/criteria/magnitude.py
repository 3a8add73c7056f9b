"""The sum of |w| over all entries of a unit, in all its tensors."""

from __future__ import annotations

from vitscope.sparse.choose import Scores
from vitscope.sparse.criteria.evidence import Evidence


def magnitude(evidence: Evidence) -> Scores:
    return evidence.by_kind(
        lambda group: group.sums({piece.name: evidence.tensors[piece.name].abs() for piece in group.own})
    )
