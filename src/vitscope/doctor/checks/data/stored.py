"""Pictures as they lie in the data set's files, before any loader has varied them: copies, and what two parts have in
common.

Equal bytes tell copies, and reading is so quick that even a large set is compared nearly whole; small decoded pictures
tell those that were saved again.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from PIL import Image
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from vitscope.data.dataset import Dataset
from vitscope.data.decode import BadImageError, decode_image
from vitscope.data.sources.source import Stored, size_bytes
from vitscope.data.survey.near import SIDE, near_pairs
from vitscope.doctor.patient import Patient
from vitscope.doctor.thresholds.data import (
    DISTINCT_SHARE,
    LEAKED_SHARE,
    STORED_BYTES,
    STORED_DECODED,
    STORED_READ,
    STORED_SECONDS,
)


@dataclass(frozen=True)
class StoredPart:
    """Pictures of a part in the order of its files, as many as there was time to read."""

    total: int
    """Pictures of the part."""
    prints: tuple[bytes, ...]
    """A hash of each one that was read: equal bytes, equal hashes."""
    kept: tuple[Stored, ...]
    """Some of them themselves, drawn by lot."""
    pixel_limit: int

    @property
    def distinct(self) -> tuple[int, int]:
        """Pictures that were looked at and how many different ones they are: by their bytes, and where that shows
        little by what they look like."""
        by_bytes = len(set(self.prints))
        if by_bytes <= DISTINCT_SHARE * len(self.prints) or not self.tells_looks:
            return len(self.prints), by_bytes
        by_looks = len(np.unique(_families(self.small)))
        return min((len(self.prints), by_bytes), (len(self.small), by_looks), key=lambda one: one[1] / max(one[0], 1))

    @property
    def tells_looks(self) -> bool:
        """Whether enough of the part can be decoded. What is alike by chance is not to be multiplied; so where few of
        training are compared, even a whole copy of it would decide nothing."""
        enough = 2 * LEAKED_SHARE * self.total
        return len(self.kept) >= enough and len(self.small) >= enough

    @cached_property
    def small(self) -> np.ndarray:
        """(n, 16, 16, 3) bytes of the kept ones that can be decoded and have more than one colour, while there is
        time."""
        found: list[np.ndarray] = []
        began = time.perf_counter()
        for content in self.kept:
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
    to_keep = set(numbers[:STORED_DECODED].tolist())
    prints, kept, held = list[bytes](), list[Stored](), 0
    began = time.perf_counter()
    for number, stored in dataset.source.scan(np.sort(numbers)):
        if time.perf_counter() - began > STORED_SECONDS:
            break
        if isinstance(stored, Exception):  # told of elsewhere
            continue
        prints.append(hashlib.blake2b(_bytes(stored), digest_size=16).digest())
        if number in to_keep and held < STORED_BYTES:
            kept.append(stored)
            held += size_bytes(stored)
    return StoredPart(len(dataset.splits[part]), tuple(prints), tuple(kept), dataset.config.pixel_limit)


def common(train: StoredPart, other: StoredPart) -> Common:
    """By their bytes, and where that shows little by what they look like."""
    known = set(train.prints)
    found = sum(one in known for one in other.prints)
    share = found / max(len(other.prints), 1) * (train.total / max(len(train.prints), 1))
    exact = Common(found, min(share, 1.0), len(other.prints), "exact")
    if share >= LEAKED_SHARE or not train.tells_looks:
        return exact
    near = _look_alike(train.small, other.small)
    return near if near.share >= LEAKED_SHARE else exact


def _look_alike(train: np.ndarray, other: np.ndarray) -> Common:
    if not len(train) or not len(other):
        return Common(0, 0.0, 0, "near")
    family = _families(np.concatenate([train, other]))
    alike = np.isin(family[len(train) :], family[: len(train)])
    return Common(int(alike.sum()), float(alike.mean()), len(other), "near")


def _families(small: np.ndarray) -> np.ndarray:
    """(n,) a number for each picture; those that look the same have the same."""
    flat = small.reshape(len(small), -1)
    _, first, place = np.unique(flat, axis=0, return_index=True, return_inverse=True)
    pairs = near_pairs(small[first]).pairs
    beside = coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(len(first), len(first)))
    return connected_components(beside, directed=False)[1][place]


def _bytes(stored: Stored) -> bytes:
    return stored if isinstance(stored, bytes) else f"{stored.shape}".encode() + stored.tobytes()
