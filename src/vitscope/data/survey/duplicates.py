"""Pictures a data set holds more than once: within a part, across parts (leaks), and under two labels.

Exact duplicates have the same pixels once decoded; near duplicates look the same (`near.py` says when). Copies form
groups; a group of n pictures counts n - 1 duplicates, and nothing here grows with the number of pairs in a group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np

from vitscope.data.splits import PARTS
from vitscope.data.survey.near import NearPairs, near_pairs


@dataclass(frozen=True)
class Group:
    """Pictures that are one and the same."""

    members: tuple[int, ...]
    """Numbers of the pictures, rising."""
    exact: bool
    """All have the same pixels."""
    parts: tuple[str, ...]
    """Part of each member."""
    labels: tuple[int, ...]
    """Label of each member."""

    @property
    def leaks(self) -> bool:
        return len(set(self.parts)) > 1

    @property
    def conflicts(self) -> bool:
        return len(set(self.labels)) > 1

    def example(self) -> tuple[int, int]:
        """Two members that show the worst of the group: of two parts, or else of two labels, or else the first two."""
        for different in (self.parts, self.labels):
            other = next((n for n, value in enumerate(different) if value != different[0]), None)
            if other is not None:
                return self.members[0], self.members[other]
        return self.members[0], self.members[1]


@dataclass(frozen=True)
class Leak:
    """Pictures of a part that is held out which have a copy in another."""

    seen: str
    """The part that has the copy: 'train'."""
    held_out: str
    """The part they are in: 'test'."""
    exact: int
    near: int
    """Those that only have a near copy."""


@dataclass(frozen=True)
class Duplicates:
    """All copies found. Groups with leaks come first, then those with label conflicts, then the larger."""

    groups: tuple[Group, ...]
    exact: int
    """Pictures that could go because an exact copy stays."""
    near: int
    """Further ones that could go because a near copy stays."""
    within: dict[str, int]
    """Part -> copies of a picture of the same part."""
    leaks: tuple[Leak, ...]
    """Only pairs of parts that have any."""
    conflicts: int
    """Groups whose members have different labels."""
    threshold: float
    """Largest RMS difference of thumbnails that was looked for."""
    left_out: int
    """Pictures not compared with others: thousands are almost like them."""

    def to_dict(self) -> dict[str, Any]:
        groups = [{**asdict(group), "leaks": group.leaks, "conflicts": group.conflicts} for group in self.groups]
        return {**asdict(self), "groups": groups, "leaks": [asdict(leak) for leak in self.leaks]}


def find_duplicates(
    numbers: np.ndarray, hashes: Sequence[bytes], thumbnails: np.ndarray, parts: Sequence[str], labels: Sequence[int]
) -> Duplicates:
    """Copies among the pictures `numbers` (N,), of which all else is given in the same order.

    `hashes` are of the decoded pixels, `thumbnails` (N, 16, 16, 3) bytes.
    """
    first: dict[bytes, int] = {}
    original = np.array([first.setdefault(content, place) for place, content in enumerate(hashes)], dtype=np.int64)
    unique = np.flatnonzero(original == np.arange(len(original)))
    near = near_pairs(thumbnails[unique])
    group_of = _united(original, unique, near)
    order = np.argsort(group_of, kind="stable")
    starts = np.flatnonzero(np.diff(group_of[order], prepend=-1))
    groups: list[Group] = []
    within: dict[str, int] = dict.fromkeys(PARTS, 0)
    leaked: dict[tuple[str, str], list[int]] = {pair: [0, 0] for pair in combinations(PARTS, 2)}
    members: list[list[int]] = [places.tolist() for places in np.split(order, starts[1:])]
    for places in members:
        if len(places) < 2:
            continue
        group = Group(
            tuple(int(numbers[place]) for place in places),
            len({int(original[place]) for place in places}) == 1,
            tuple(parts[place] for place in places),
            tuple(int(labels[place]) for place in places),
        )
        groups.append(group)
        contents = {part: [int(original[p]) for p in places if parts[p] == part] for part in PARTS}
        for part in PARTS:
            within[part] += max(0, len(contents[part]) - 1)
        for (seen, held_out), counts in leaked.items():
            if contents[seen]:
                known = set(contents[seen])
                same = sum(content in known for content in contents[held_out])
                counts[0] += same
                counts[1] += len(contents[held_out]) - same
    groups.sort(key=lambda group: (not group.leaks, not group.conflicts, -len(group.members), group.members))
    exact = len(original) - len(unique)
    return Duplicates(
        groups=tuple(groups),
        exact=exact,
        near=sum(len(group.members) - 1 for group in groups) - exact,
        within=within,
        leaks=tuple(Leak(*pair, *counts) for pair, counts in leaked.items() if any(counts)),
        conflicts=sum(group.conflicts for group in groups),
        threshold=near.threshold,
        left_out=near.left_out,
    )


def _united(original: np.ndarray, unique: np.ndarray, near: NearPairs) -> np.ndarray:
    """(N,) number of the group each picture is in: copies of one picture, and of those near it."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    count = len(original)
    rows = np.concatenate([np.arange(count), unique[near.pairs[:, 0]]])
    columns = np.concatenate([original, unique[near.pairs[:, 1]]])
    links = coo_array((np.ones(len(rows), dtype=bool), (rows, columns)), shape=(count, count))
    return connected_components(links, directed=False)[1]
