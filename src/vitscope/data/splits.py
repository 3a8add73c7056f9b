"""Train, validation and test: given, carved or drawn. A function of labels and the split seed, nothing else.

A part is drawn by sorting hashes, not by a generator, so that the split is the same with every version of every
library; its hash travels with a run and says so.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from vitscope.core.errors import DataError
from vitscope.core.seed import derive_seed
from vitscope.data.draws import picture_keys

TRAIN, VAL, TEST = "train", "val", "test"
PARTS = (TRAIN, VAL, TEST)
SYNONYMS = {
    TRAIN: ("train", "training", "trn"),
    VAL: ("val", "valid", "validation", "dev", "eval"),
    TEST: ("test", "testing", "tst", "t10k"),
}


@dataclass(frozen=True)
class Splits:
    """Numbers of the pictures in each part, rising."""

    train: np.ndarray
    val: np.ndarray
    test: np.ndarray
    how: str
    """Where the parts come from, for people."""
    hash: str = ""
    """Of the numbers and labels in every part. Another hash: not the same pictures were trained and tested on."""

    def __getitem__(self, part: str) -> np.ndarray:
        if part not in PARTS:
            raise DataError(f"unknown part '{part}'", fix=f"parts: {', '.join(PARTS)}")
        return getattr(self, part)


def make_splits(
    labels: np.ndarray,
    parts: Mapping[str, np.ndarray],
    *,
    seed: int = 0,
    val_share: float = 0.1,
    pool_shares: tuple[float, float, float] = (0.68, 0.12, 0.2),
    train_limit: int | None = None,
) -> Splits:
    """Three parts from what a source gives.

    Three given parts stay as they are. Of two, the one that is not for training is the test set, whatever it is
    called, and validation is carved from the training pictures. One pool is drawn apart. Of the training pictures
    `train_limit` are kept at most. All draws keep the classes' shares.
    """
    train, val, test, how = _parts(labels, parts, seed, val_share, pool_shares)
    if train_limit is not None and train_limit < len(train):
        share = train_limit / len(train)
        kept, _ = _drawn(labels, train, (share, 1 - share), seed)
        how += f"; {len(kept):,} of {len(train):,} training pictures"
        train = kept
    return _made(labels, train, val, test, how)


def _parts(
    labels: np.ndarray,
    parts: Mapping[str, np.ndarray],
    seed: int,
    val_share: float,
    pool_shares: tuple[float, float, float],
) -> tuple[np.ndarray, np.ndarray, np.ndarray, str]:
    """Train, validation, test, and where they come from."""
    given = {name: _same_as(name, parts) for name in PARTS}
    train, val, test = (given[name] for name in PARTS)
    if train is not None and val is not None and test is not None:
        return parts[train], parts[val], parts[test], "train, validation and test as given"
    held_out = val if test is None else test
    if train is not None and held_out is not None:
        kept, carved = _drawn(labels, parts[train], (1 - val_share, val_share), seed)
        how = f"test is the given '{held_out}', validation {val_share:.0%} of the given '{train}'"
        return kept, carved, parts[held_out], how + f", stratified, seed {seed}"
    pool = np.sort(np.concatenate(list(parts.values()))) if parts else np.arange(len(labels))
    kept, carved, held = _drawn(labels, pool, pool_shares, seed)
    shares = "/".join(f"{100 * share:g}" for share in pool_shares)
    return kept, carved, held, f"one pool, drawn apart {shares}, stratified, seed {seed}"


def _made(labels: np.ndarray, train: np.ndarray, val: np.ndarray, test: np.ndarray, how: str) -> Splits:
    digest = hashlib.sha256()
    for part, numbers in zip(PARTS, (train, val, test), strict=True):
        digest.update(part.encode() + b"\0" + numbers.astype("<i8").tobytes() + labels[numbers].astype("<i8").tobytes())
    return Splits(train, val, test, how, digest.hexdigest()[:16])


def part_called(name: str) -> str | None:
    """Which of our parts a folder or file name means: 'Validation' -> 'val'."""
    plain = name.lower()
    return next((part for part, words in SYNONYMS.items() if plain in words), None)


def _same_as(part: str, parts: Mapping[str, np.ndarray]) -> str | None:
    found = [name for name in parts if part_called(name) == part]
    if len(found) > 1:
        raise DataError(
            f"two parts mean the same: {', '.join(map(repr, found))}", fix=f"keep one of them, called '{part}'"
        )
    return found[0] if found else None


def _drawn(labels: np.ndarray, pool: np.ndarray, shares: tuple[float, ...], seed: int) -> tuple[np.ndarray, ...]:
    """The pool in parts of these shares, class by class. The first part gets at least one of every class."""
    order = _shuffled(pool, seed)
    order = order[np.argsort(labels[order], kind="stable")]
    classes, starts = np.unique(labels[order], return_index=True)
    taken: list[list[np.ndarray]] = [[] for _ in shares]
    owed = np.zeros(len(shares))
    for members in np.split(order, starts[1:]) if len(classes) else ():
        # Each class is owed its exact share; what rounding keeps back from one class goes to the next, so that both
        # every class and the whole come within one picture of what was asked for.
        owed += np.array(shares) * len(members)
        counts = _rounded(owed, len(members))
        # What a tiny class could not give is not taken from the next.
        owed = np.clip(owed - counts, -1, 1)
        for part, chunk in zip(taken, np.split(members, np.cumsum(counts)[:-1]), strict=True):
            part.append(chunk)
    return tuple(np.sort(np.concatenate(part)) for part in taken)


def _rounded(owed: np.ndarray, total: int) -> np.ndarray:
    """Whole numbers that add up to `total`, as near to what is owed as can be; the first is at least 1."""
    counts = np.maximum(np.floor(owed), 0).astype(np.int64)
    if total and counts[0] == 0:
        counts[0] = 1
    while counts.sum() < total:
        counts[np.argmax(owed - counts)] += 1
    while counts.sum() > total:
        rest = np.where(counts > np.array([1] + [0] * (len(counts) - 1)), counts - owed, -np.inf)
        counts[np.argmax(rest)] -= 1
    return counts


def _shuffled(pool: np.ndarray, seed: int) -> np.ndarray:
    keys = picture_keys(derive_seed(seed, "split"), torch.from_numpy(np.ascontiguousarray(pool)))
    return pool[torch.argsort(keys, stable=True).numpy()]
