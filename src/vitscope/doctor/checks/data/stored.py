"""Pictures as they lie in the data set's files, before any loader has varied them.

Equal bytes tell copies, and reading is so quick that even a large set is compared nearly whole; small decoded pictures
tell those that were saved again. Where files are slow time runs out: so pictures are read in an order drawn by lot, and
what was read stands for all.
"""

from __future__ import annotations

import hashlib
import random
import time
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from PIL import Image

from vitscope.data.dataset import Dataset
from vitscope.data.decode import BadImageError, decode_image
from vitscope.data.sources.source import Stored, size_bytes
from vitscope.data.splits import PARTS, TRAIN
from vitscope.data.survey.near import SIDE
from vitscope.doctor.checks.data.alike import families
from vitscope.doctor.patient import Patient
from vitscope.doctor.thresholds.data import (
    DISTINCT_SHARE,
    FAIR_CHANCE,
    FAIR_GAP,
    LEAKED_SHARE,
    STORED_BYTES,
    STORED_DECODED,
    STORED_READ,
    STORED_SECONDS,
)


@dataclass
class StoredPart:
    """Pictures of a part, as many as there was time to read."""

    total: int
    """Pictures of the part."""
    prints: tuple[bytes, ...]
    """A hash of each one that was read: equal bytes, equal hashes."""
    is_fair: bool
    """Whether they come from all over the part: of one huge row group it may be the beginning."""
    kept: list[Stored]
    """Some of them themselves, drawn by lot, until they are made small."""
    pixel_limit: int

    @property
    def distinct(self) -> tuple[int, int]:
        """Pictures that were looked at and how many different ones they are: by their bytes, and where that shows
        little by what they look like."""
        by_bytes = len(set(self.prints))
        if by_bytes <= DISTINCT_SHARE * len(self.prints) or not self.tells_looks:
            return len(self.prints), by_bytes
        by_looks = len(np.unique(families(self.small)))
        return min((len(self.prints), by_bytes), (len(self.small), by_looks), key=lambda one: one[1] / max(one[0], 1))

    @property
    def tells_looks(self) -> bool:
        """Whether enough of the part can be decoded."""
        enough = _enough_for_looks(self.total)
        return ("small" in vars(self) or len(self.kept) >= enough) and len(self.small) >= enough

    @cached_property
    def small(self) -> np.ndarray:
        """(n, 16, 16, 3) bytes of the kept ones that can be decoded and have more than one colour, while there is
        time. The others are let go of."""
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
            if (one != one[0, 0]).any():
                found.append(one)
        self.kept.clear()
        return np.stack(found) if found else np.empty((0, SIDE, SIDE, 3), np.uint8)


def stored_part(patient: Patient, dataset: Dataset, part: str) -> StoredPart:
    """Read once; each caller has the same."""
    held = patient.glances.get(f"stored {part}")
    if held is None:
        held = patient.glances[f"stored {part}"] = read_part(dataset, part)
    return held


def let_go_of_stored(patient: Patient) -> None:
    """For the last who asks: the pictures of three parts may be some hundred megabytes."""
    for part in PARTS:
        patient.glances.pop(f"stored {part}", None)


def read_part(dataset: Dataset, part: str) -> StoredPart:
    """`stored_part`, read anew."""
    all_numbers = dataset.splits[part]
    rng = np.random.default_rng([0, PARTS.index(part)])  # parts of one length are not to be drawn alike
    chosen = rng.permutation(all_numbers)[:STORED_READ]
    tells_looks = _enough_for_looks(len(dataset.splits[TRAIN])) <= STORED_DECODED
    sample = _Sample(STORED_DECODED if tells_looks else 0)
    prints, numbers = list[bytes](), list[int]()
    began = time.perf_counter()
    for number, stored in dataset.source.scan_by_lot(chosen, rng):
        if time.perf_counter() - began > STORED_SECONDS:
            break
        if isinstance(stored, Exception):  # told of elsewhere
            continue
        prints.append(hashlib.blake2b(_bytes(stored), digest_size=16).digest())
        numbers.append(number)
        sample.offer(stored)
    is_fair = _is_fair(np.array(numbers, np.int64), all_numbers)
    return StoredPart(len(all_numbers), tuple(prints), is_fair, sample.drawn(), dataset.config.pixel_limit)


class _Sample:
    """At most so many of the pictures that come by, however many these are, each with the same chance, and no more
    bytes than may be kept (reservoir sampling, Vitter 1985)."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lot = random.Random(0)
        self._kept: list[Stored] = []
        self._bytes = self._offered = 0

    def offer(self, stored: Stored) -> None:
        self._offered += 1
        if len(self._kept) < self._most:
            self._kept.append(stored)
        elif (place := int(self._lot.random() * self._offered)) < self._most:
            self._bytes -= size_bytes(self._kept[place])
            self._kept[place] = stored
        else:
            return
        self._bytes += size_bytes(stored)
        while self._bytes > STORED_BYTES:
            self._bytes -= size_bytes(self._kept.pop(self._lot.randrange(len(self._kept))))
            self._most = len(self._kept)

    def drawn(self) -> list[Stored]:
        """In an order drawn by lot too: there may be time for the first ones only."""
        self._lot.shuffle(self._kept)
        return self._kept


def _enough_for_looks(train_pictures: int) -> float:
    """What is alike by chance is not to be multiplied; so where few of training are compared, even a whole copy of it
    would decide nothing."""
    return 2 * LEAKED_SHARE * train_pictures


def _is_fair(read: np.ndarray, everything: np.ndarray) -> bool:
    """By the largest gap between how far through the part one is and how much of what was read lies before it
    (Kolmogorov and Smirnov's)."""
    places = np.flatnonzero(np.isin(everything, read)) / max(len(everything), 1)
    gap = np.abs(places - np.arange(len(places)) / max(len(places), 1)).max(initial=0.0)
    return bool(gap <= FAIR_GAP + FAIR_CHANCE / max(len(places), 1) ** 0.5)


def _bytes(stored: Stored) -> bytes:
    return stored if isinstance(stored, bytes) else f"{stored.shape}".encode() + stored.tobytes()
