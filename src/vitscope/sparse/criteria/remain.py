"""How many entries of a unit an unstructured mask has left."""

from __future__ import annotations

from vitscope.sparse.choose import Scores
from vitscope.sparse.criteria.evidence import Evidence, require_masks


def remain(evidence: Evidence) -> Scores:
    counted = {name: mask.long() for name, mask in require_masks(evidence).items()}
    return evidence.by_kind(lambda group: group.sums(counted))
