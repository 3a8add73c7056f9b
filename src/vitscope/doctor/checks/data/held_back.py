"""Are test pictures kept from training? Nothing trains or stops by them, but they give the figure that is believed.

No loader shows them here, so they are read as they are stored: first the bytes, which is quick and finds copied files,
then small decoded pictures, which finds those that were saved again. Both have a second at most.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator

import numpy as np
from PIL import Image

from vitscope.data.dataset import Dataset
from vitscope.data.decode import BadImageError, decode_image
from vitscope.data.sources.source import Stored
from vitscope.data.splits import TEST, TRAIN, VAL, part_called
from vitscope.data.survey.near import SIDE, near_pairs
from vitscope.doctor.checks.data.plain import read_some
from vitscope.doctor.finding import Finding, Note
from vitscope.doctor.thresholds.data import LEAKED_PICTURES, LEAKED_SHARE, TEST_DECODED, TEST_READ, TEST_SECONDS


def leak_into_test(dataset: Dataset) -> Finding | Note | None:
    """What is to be said of test pictures that training has too."""
    if not len(dataset.splits[TRAIN]) or not len(dataset.splits[TEST]):
        return None
    found, share, looked = _same_bytes(dataset)
    kind = "exact"
    if share < LEAKED_SHARE:
        near, near_share, near_looked = _look_alike(dataset)
        if near_share > share:
            found, share, looked, kind = near, near_share, near_looked, "near"
    numbers = {"found": found, "share": min(share, 1.0), "pictures": looked, "kind": kind}
    if found >= LEAKED_PICTURES and share >= LEAKED_SHARE:
        return Finding("test_leaked", 0.8 if kind == "near" else 0.95, numbers)
    return Note("few_test_leaks", numbers) if found and kind == "exact" else None


def given_as_test(dataset: Dataset) -> Note | None:
    """Where a part called validation became the test part, which its owner may not expect."""
    names = {part_called(name): name for name in dataset.source.parts}
    if TRAIN not in names or VAL not in names or TEST in names:
        return None
    numbers = {"name": names[VAL], "train": names[TRAIN], "share": dataset.config.val_share}
    return Note("validation_became_test", numbers)


def _same_bytes(dataset: Dataset) -> tuple[int, float, int]:
    """Test pictures with an equal one in training, the share of all that would, if all were read, and those read."""
    test, train = (
        [hashlib.blake2b(_bytes(stored), digest_size=16).digest() for stored in _read(dataset, part, TEST_READ)]
        for part in (TEST, TRAIN)
    )
    known = set(train)
    found = sum(one in known for one in test)
    return found, found / max(len(test), 1) * (len(dataset.splits[TRAIN]) / max(len(train), 1)), len(test)


def _look_alike(dataset: Dataset) -> tuple[int, float, int]:
    """The same by small pictures; of those read only: what is alike by chance is not to be multiplied."""
    train, test = (_thumbnails(dataset, part) for part in (TRAIN, TEST))
    if not len(train) or not len(test):
        return 0, 0.0, 0
    both = np.concatenate([train, test])
    _, first, same = np.unique(both.reshape(len(both), -1), axis=0, return_index=True, return_inverse=True)
    equal = np.isin(same[len(train) :], same[: len(train)])
    pairs = np.sort(first)[near_pairs(both[np.sort(first)]).pairs]
    crossing = pairs[(pairs[:, 0] < len(train)) & (pairs[:, 1] >= len(train))]
    equal[crossing[:, 1] - len(train)] = True
    return int(equal.sum()), float(equal.mean()), len(test)


def _thumbnails(dataset: Dataset, part: str) -> np.ndarray:
    """(n, 16, 16, 3) bytes of pictures that can be read and have more than one colour."""
    small: list[np.ndarray] = []
    for stored in _read(dataset, part, TEST_DECODED):
        try:
            picture = decode_image(stored, pixel_limit=dataset.config.pixel_limit)
            one = np.asarray(picture.resize((SIDE, SIDE), Image.Resampling.BILINEAR))
        except (BadImageError, MemoryError, OSError, ValueError):
            continue
        if int(one.max()) > int(one.min()):
            small.append(one)
    return np.stack(small) if small else np.empty((0, SIDE, SIDE, 3), np.uint8)


def _read(dataset: Dataset, part: str, most: int) -> Iterator[Stored]:
    """Pictures of a part by chance, as long as there is time."""
    numbers = np.random.default_rng(0).permutation(dataset.splits[part])[:most]
    began = time.perf_counter()
    for _, stored in read_some(dataset.source, numbers):
        if time.perf_counter() - began > TEST_SECONDS:
            return
        yield stored


def _bytes(stored: Stored) -> bytes:
    return stored if isinstance(stored, bytes) else str(stored.shape).encode() + stored.tobytes()
