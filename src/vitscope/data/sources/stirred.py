"""Rows of streams that can only be read from their beginnings, in an order nearly drawn by lot.

A stretch of a file sorted by class holds one class. So a stream is read in short stretches, whose turn is drawn by lot
among those of many streams, and what has come is gathered in a pool and stirred. Nothing is read twice. What has come
when one stops is a fair sample of all, but where one stream holds far more than the pool and most of all rows: of that
it is the beginning.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Generic, Protocol, TypeVar

import numpy as np

STRETCH_BYTES = 2**18
"""A stretch should hold: of photographs a few, of small pictures some hundreds."""
POOL_BYTES = 2**24
OPEN_STREAMS = 64
"""Each may hold a file and a piece of it."""


class Stretch(Protocol):
    """Rows that lie side by side."""

    @property
    def size_bytes(self) -> int: ...

    def __len__(self) -> int: ...


One = TypeVar("One", bound=Stretch)


@dataclass(frozen=True)
class Stream(Generic[One]):
    """A row group, say; it costs something from its first stretch on."""

    count: int
    """Stretches it has, as far as one knows beforehand: so often it has its turn."""
    stretches: Iterator[One]


def stirred(streams: Sequence[Stream[One]], rng: np.random.Generator) -> Iterator[tuple[One, int]]:
    """Every row of every stream once: a stretch, and a place in it."""
    pool: list[One] = []
    size_bytes = 0
    for stretch in _by_lot(streams, rng):
        pool.append(stretch)
        size_bytes += stretch.size_bytes
        if size_bytes >= POOL_BYTES:
            yield from _shuffled(pool, rng)
            pool, size_bytes = [], 0
    yield from _shuffled(pool, rng)


def _by_lot(streams: Sequence[Stream[One]], rng: np.random.Generator) -> Iterator[One]:
    """A stream with twice as many stretches has twice as many turns."""
    order = rng.permutation(len(streams))
    counts = np.array([stream.count for stream in streams], dtype=np.int64)
    for first in range(0, len(order), OPEN_STREAMS):
        some = order[first : first + OPEN_STREAMS]
        for turn in rng.permutation(np.repeat(some, counts[some])).tolist():
            yield from islice(streams[turn].stretches, 1)
        for one in some.tolist():
            yield from streams[one].stretches


def _shuffled(pool: Sequence[One], rng: np.random.Generator) -> Iterator[tuple[One, int]]:
    lengths = [len(stretch) for stretch in pool]
    ends = np.cumsum([0, *lengths])
    drawn = rng.permutation(ends[-1])
    which = np.repeat(np.arange(len(pool)), lengths)[drawn]
    for stretch, place in zip(which.tolist(), (drawn - ends[which]).tolist(), strict=True):
        yield pool[stretch], place
