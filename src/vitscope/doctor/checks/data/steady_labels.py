"""Does a picture keep its label? Read twice by its number, or met in two passes, it is the same class each time.

Training may vary a picture, or give another one for the same number on purpose. So only those count that are known
again: of all that were read the first time, the picture itself is among the likest.
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


def steady_labels(patient: Patient) -> Seen:
    if patient.settings is not None:
        return Seen()  # labels are read once, when the data are opened
    if not glance(patient).has_classes or bool((glance(patient).share < 1).any()):
        return Seen(left_out="labels_are_no_classes")
    pairs = _by_pass(patient) if patient.rows is None else _by_number(patient.rows)
    if len(pairs) < LEAST_KNOWN_AGAIN:
        return Seen(left_out="labels_not_read_again")
    changed = sum(before != after for before, after in pairs)
    seen = Seen(measured={"read": len(pairs), "changed": changed})
    if changed >= LABELS_CHANGED * len(pairs):
        numbers = {"changed": changed, "pictures": len(pairs), "share": changed / len(pairs)}
        seen.findings.append(Finding("labels_change", 0.96, numbers, ends=changed >= len(pairs) / 2))
    return seen


def _by_number(rows: Any) -> list[tuple[float, float]]:
    """Labels of the same rows, read twice, of those whose picture is known again."""
    numbers = torch.linspace(0, len(rows) - 1, min(LABELS_READ, len(rows))).long().unique().tolist()
    began, images, labels = time.perf_counter(), ([], []), ([], [])
    for number in numbers:
        read = [_row(rows[number]) for _ in range(2)]
        if None in read or time.perf_counter() - began > LABELS_SECONDS:
            break
        for place, one in enumerate(read):
            if one is not None:
                images[place].append(_traits(one[0]))
                labels[place].append(one[1])
    if len(labels[0]) < LEAST_KNOWN_AGAIN:
        return []
    first, again = (torch.stack(some) for some in images)
    scale = first.std(0).clamp(min=1e-6)
    apart = torch.cdist(again / scale, first / scale)
    rank = (apart < apart.diagonal()[:, None]).double().mean(1)
    known = (rank < KNOWN_RANK).tolist()
    pairs = [pair for pair, is_known in zip(zip(*labels, strict=True), known, strict=True) if is_known]
    return pairs if len(pairs) >= KNOWN_AGAIN * len(known) else []


def _by_pass(patient: Patient) -> list[tuple[float, float]]:
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
    if image.ndim != 3 or (isinstance(label, Tensor) and label.numel() != 1):
        return None
    try:
        return image, float(label)
    except (TypeError, ValueError):
        return None


def _traits(image: Tensor) -> Tensor:
    """(4 C,) what neither a shift nor a mirror changes by much."""
    pixels = image.detach().double().flatten(1)
    parts = [pixels.mean(1), pixels.std(1, correction=0), pixels.quantile(0.25, dim=1), pixels.quantile(0.75, dim=1)]
    return torch.cat(parts)
