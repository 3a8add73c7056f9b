"""What a held-back part has in common with training, by their pictures as they are stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from vitscope.doctor.checks.data.alike import families
from vitscope.doctor.checks.data.stored import StoredPart
from vitscope.doctor.thresholds.data import LEAKED_PICTURES, LEAKED_SHARE


@dataclass(frozen=True)
class Common:
    """Pictures of a held-back part that training has too."""

    found: int
    share: float
    """Of the part. exact: as if all of both had been looked at; near: with those of training that were decoded, so no
    more than there are. What is alike by chance is not to be multiplied."""
    pictures: int
    """Looked at."""
    kind: str
    """exact: byte by byte; near: they look the same; cropped: a piece of one is in the other."""
    is_least: bool = False
    """Whether the share says nothing of those that were not looked at."""

    @property
    def verdict(self) -> Literal["leaked", "few", "unclear"] | None:
        """unclear: so few were looked at that these may be chance, or some of many."""
        if not self.found:
            return None
        if self.share >= LEAKED_SHARE:
            return "leaked" if self.found >= LEAKED_PICTURES else "unclear"
        return "unclear" if self.is_least else "few"

    @property
    def numbers(self) -> dict[str, Any]:
        return {"found": self.found, "share": min(self.share, 1.0), "pictures": self.pictures, "kind": self.kind}


def common(train: StoredPart, other: StoredPart) -> Common:
    """By their bytes, and where that shows little by what they look like."""
    known = set(train.prints)
    found = sum(one in known for one in other.prints)
    # A sample says how many of all there are. Of parts that were not fairly read only what was found is known.
    read = len(train.prints) / max(train.total, 1) if train.is_fair else 1.0
    share = found / _out_of(other, len(other.prints)) / read if found else 0.0
    is_least = not (train.is_fair and other.is_fair)
    exact = Common(found, min(share, 1.0), len(other.prints), "exact", is_least)
    if share >= LEAKED_SHARE or not train.tells_looks:
        return exact
    near = _look_alike(train, other)
    return near if near.share >= LEAKED_SHARE else exact


def _look_alike(train: StoredPart, other: StoredPart) -> Common:
    count, pictures = len(train.small), len(other.small)
    if not count or not pictures:
        return Common(0, 0.0, 0, "near", is_least=True)
    family = families(np.concatenate([train.small, other.small]))
    found = int(np.isin(family[count:], family[:count]).sum())
    return Common(found, found / _out_of(other, pictures), pictures, "near", is_least=True)


def _out_of(part: StoredPart, looked_at: int) -> int:
    return max(1, looked_at if part.is_fair else part.total)
