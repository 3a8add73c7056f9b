"""Does a picture keep its label? Read twice by its number, or met in two passes, it is the same class each time.

Training may vary a picture, or give another one for the same number on purpose. So only those count that are known
again: of all that were read the first time, the picture itself is among the likest. The class may be how it was varied
(a picture turned, and by how much), so only the same pixels with another class are proof.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import torch
from torch import Tensor

from vitscope.doctor.finding import Finding, Seen
from vitscope.doctor.glance import glance, look
from vitscope.doctor.patient import Patient
from vitscope.doctor.thresholds.data import (
    KNOWN_AGAIN,
    KNOWN_RANK,
    LABELS_CHANGED,
    LABELS_READ,
    LABELS_SECONDS,
    LEAST_KNOWN_AGAIN,
)

Pairs = list[tuple[float, float]]
"""Of one picture, the label of each reading."""


def steady_labels(patient: Patient) -> Seen:
    if patient.settings is not None:
        return Seen()  # labels are read once, when the data are opened
    if not glance(patient).has_classes or bool((glance(patient).share < 1).any()):
        return Seen(left_out="labels_are_no_classes")
    same, varied = (_by_pass(patient), []) if patient.rows is None else _by_number(patient.rows)
    if max(len(same), len(varied)) < LEAST_KNOWN_AGAIN:
        return Seen(left_out="labels_not_read_again")
    changed, changed_with_pixels = _changed(same), _changed(varied)
    seen = Seen(measured={"read": len(same) + len(varied), "changed": changed + changed_with_pixels})
    if len(same) >= LEAST_KNOWN_AGAIN and changed >= LABELS_CHANGED * len(same):
        seen.findings.append(_finding(0.96, changed, len(same), ends=changed >= len(same) / 2))
    elif len(varied) >= LEAST_KNOWN_AGAIN and changed_with_pixels >= LABELS_CHANGED * len(varied):
        if len(same) >= LEAST_KNOWN_AGAIN and not changed:
            seen.left_out = "labels_follow_pixels"
        else:
            seen.findings.append(_finding(0.45, changed_with_pixels, len(varied), ends=False))
    return seen


def _changed(pairs: Pairs) -> int:
    return sum(before != after for before, after in pairs)


def _finding(sure: float, changed: int, read: int, *, ends: bool) -> Finding:
    numbers = {"changed": changed, "pictures": read, "share": changed / read}
    return Finding("labels_change", sure, numbers, ends=ends)


def _by_number(rows: Any) -> tuple[Pairs, Pairs]:
    """Labels of the same rows, read twice: of those with the same pixels, and of others that are known again."""
    numbers = torch.linspace(0, len(rows) - 1, min(LABELS_READ, len(rows))).long().unique().tolist()
    began, same, traits, pairs = time.perf_counter(), list[bool](), ([], []), list[tuple[float, float]]()
    for number in numbers:
        first, again = (_row(rows[number]) for _ in range(2))
        if first is None or again is None or time.perf_counter() - began > LABELS_SECONDS:
            break
        same.append(torch.equal(first[0], again[0]))
        for place, (image, _) in zip(traits, (first, again), strict=True):
            place.append(_traits(image))
        pairs.append((first[1], again[1]))
    if len(pairs) < LEAST_KNOWN_AGAIN:
        return [], []
    first, again = (torch.stack(some) for some in traits)
    scale = first.std(0).clamp(min=1e-6)
    apart = torch.cdist(again / scale, first / scale)
    known = (apart < apart.diagonal()[:, None]).double().mean(1) < KNOWN_RANK
    is_known = known.tolist() if float(known.double().mean()) >= KNOWN_AGAIN else [False] * len(pairs)
    varied = [pair for pair, is_same, knows in zip(pairs, same, is_known, strict=True) if knows and not is_same]
    return [pair for pair, is_same in zip(pairs, same, strict=True) if is_same], varied


def _by_pass(patient: Patient) -> Pairs:
    """Of pictures that are there once in one pass and come again in another, pixel for pixel."""
    first, again = glance(patient), look(patient.train, most=LABELS_READ, seconds=LABELS_SECONDS)
    counts = Counter(first.prints)
    labels = dict(zip(first.prints, first.labels.tolist(), strict=True))
    pairs = zip(again.prints, again.labels.tolist(), strict=True)
    return [(labels[one], label) for one, label in pairs if counts[one] == 1]


def _row(row: Any) -> tuple[Tensor, float] | None:
    """Picture and class, where they are plain."""
    if not isinstance(row, tuple | list) or len(row) < 2 or not isinstance(row[0], Tensor):
        return None
    image, label = row[0], row[1]
    if image.ndim not in (2, 3) or (isinstance(label, Tensor) and label.numel() != 1):
        return None
    try:
        return (image if image.ndim == 3 else image[None]), float(label)
    except (TypeError, ValueError):
        return None


def _traits(image: Tensor) -> Tensor:
    """(4 C,) what neither a shift nor a mirror changes by much."""
    pixels = image.detach().double().flatten(1)
    parts = [pixels.mean(1), pixels.std(1, correction=0), pixels.quantile(0.25, dim=1), pixels.quantile(0.75, dim=1)]
    return torch.cat(parts)
