"""Units by lot, the control: as many go, and which ones means nothing."""

from __future__ import annotations

import torch

from vitscope.core.seed import derive_seed
from vitscope.sparse.choose import Scores
from vitscope.sparse.criteria.evidence import Evidence


def random_draw(evidence: Evidence) -> Scores:
    """A number from 0 to 1 for each unit; the same seed draws the same on every machine."""

    def draw(kind: str, block: int, count: int) -> torch.Tensor:
        rng = torch.Generator().manual_seed(derive_seed(evidence.seed, "sparse units", kind, block))
        return torch.rand(count, generator=rng, dtype=torch.float64)

    return evidence.by_kind(lambda group: draw(group.kind, group.block, group.count))
