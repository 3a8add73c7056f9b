"""Pictures as they lie in the data set's files, before any loader has varied them: what two parts have in common.

Equal bytes tell copies, and reading is so quick that even a large set is compared nearly whole; small decoded pictures
tell those that were saved again.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

import numpy as np
from PIL import Image

from vitscope.data.dataset import Dataset
from vitscope.data.decode import BadImageError, decode_image
from vitscope.data.sources.source import Source, Stored, size_bytes
from vitscope.data.survey.near import SIDE, near_pairs
from vitscope.doctor.patient import Patient
from vitscope.doctor.thresholds.data import (
    LEAKED_SHARE,
    STORED_BYTES,
    STORED_DECODED,
    STORED_READ,
    STORED_SECONDS,
)

READ_FIRST, READ_BYTES = 64, 64_000_000
"""Pictures that are read at first; then as many at a time as make so many bytes."""


@dataclass(frozen=True)
class StoredPart:
    """Pictures of a part, drawn by lot: as many as could be read in the time and the memory there is."""

    total: int
    """Pictures of the part."""
    prints: tuple[bytes, ...]
    """A hash of each one that was read: equal bytes, equal hashes."""
    first: tuple[Stored, ...]
    """The first of them themselves."""
    pixel_limit: int

    @cached_property
    def small(self) -> np.ndarray:
        """(n, 16, 16, 3) bytes of the first ones that can be decoded and have more than one colour, while there is
        time."""
        found: list[np.ndarray] = []
        began = time.perf_counter()
        for content in self.first:
            if time.perf_counter() - began > STORED_SECONDS:
                break
            try:
                picture = decode_image(content, pixel_limit=self.pixel_limit)
                one = np.asarray(picture.resize((SIDE, SIDE), Image.Resampling.BILINEAR))
            except (BadImageError, MemoryError, OSError, ValueError):
                continue
            if int(one.max()) != int(one.min()):
                found.append(one if one.ndim == 3 else np.repeat(one[:, :, None], 3, 2))
        return np.stack(found) if found else np.empty((0, SIDE, SIDE, 3), np.uint8)


@dataclass(frozen=True)
class Common:
    """Pictures of a held-back part that training has too."""

    found: int
    share: float
    """Of those looked at, as if all of training had been."""
    pictures: int
    """Looked at."""
    kind: str
    """exact: byte by byte; near: they look the same."""


def stored_part(patient: Patient, dataset: Dataset, part: str) -> StoredPart:
    """Read once; each caller has the same."""
    held = patient.glances.get(f"stored {part}")
    if held is None:
        held = patient.glances[f"stored {part}"] = read_part(dataset, part)
    return held


def read_part(dataset: Dataset, part: str) -> StoredPart:
    """`stored_part`, read anew."""
    numbers = np.random.default_rng(0).permutation(dataset.splits[part])[:STORED_READ]
    prints, first, held = list[bytes](), list[Stored](), 0
    for _, stored in read_some(dataset.source, numbers, seconds=STORED_SECONDS):
        prints.append(hashlib.blake2b(_bytes(stored), digest_size=16).digest())
        if len(first) < STORED_DECODED and held < STORED_BYTES:
            first.append(stored)
            held += size_bytes(stored)
    return StoredPart(len(dataset.splits[part]), tuple(prints), tuple(first), dataset.config.pixel_limit)


def common(train: StoredPart, other: StoredPart) -> Common:
    """By their bytes, and where that shows little by what they look like."""
    known = set(train.prints)
    found = sum(one in known for one in other.prints)
    share = found / max(len(other.prints), 1) * (train.total / max(len(train.prints), 1))
    exact = Common(found, min(share, 1.0), len(other.prints), "exact")
    # What is alike by chance is not to be multiplied; so where few of training are compared, nothing can be decided.
    if share >= LEAKED_SHARE or len(train.first) < 2 * LEAKED_SHARE * train.total:
        return exact
    near = _look_alike(train.small, other.small)
    return near if near.share >= LEAKED_SHARE else exact


def _look_alike(train: np.ndarray, other: np.ndarray) -> Common:
    if not len(train) or not len(other):
        return Common(0, 0.0, 0, "near")
    both = np.concatenate([train, other])
    _, first, same = np.unique(both.reshape(len(both), -1), axis=0, return_index=True, return_inverse=True)
    equal = np.isin(same[len(train) :], same[: len(train)])
    pairs = np.sort(first)[near_pairs(both[np.sort(first)]).pairs]
    crossing = pairs[(pairs[:, 0] < len(train)) & (pairs[:, 1] >= len(train))]
    equal[crossing[:, 1] - len(train)] = True
    return Common(int(equal.sum()), float(equal.mean()), len(other), "near")


def read_some(source: Source, numbers: np.ndarray, *, seconds: float | None = None) -> Iterator[tuple[int, Stored]]:
    """Pictures (number, content) in the order asked for; those that cannot be read are left out, for they are told of
    elsewhere. As many are read at a time as memory allows: a single one out of a Parquet file costs as much as its row
    group. After `seconds` no more are read."""
    asked, count, began = iter(numbers.tolist()), READ_FIRST, time.perf_counter()
    while chunk := list(islice(asked, count)):
        read = dict(source.scan(chunk))
        count = max(READ_FIRST, READ_BYTES * len(chunk) // max(1, sum(map(size_bytes, read.values()))))
        for number in chunk:
            stored = read[number]
            if not isinstance(stored, Exception):
                yield number, stored
        if seconds is not None and time.perf_counter() - began > seconds:
            return


def _bytes(stored: Stored) -> bytes:
    return stored if isinstance(stored, bytes) else f"{stored.shape}".encode() + stored.tobytes()
