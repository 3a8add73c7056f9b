"""Is every pixel a number? One that is not spoils every weight in the first step that meets it."""

from __future__ import annotations

import time
from typing import Any

import torch

from vitscope.doctor.finding import Finding, Seen
from vitscope.doctor.glance import Glance, glance
from vitscope.doctor.patient import Patient
from vitscope.doctor.thresholds.data import GLANCE_SECONDS

MOST_ROWS = 100_000


def finite_pixels(patient: Patient) -> Seen:
    seen = Seen()
    parts = {"train": glance(patient)} | ({} if patient.val is None else {"validation": glance(patient, "val")})
    for part, looked in parts.items():
        bad = int(looked.is_bad.sum())
        seen.measured[f"{part}_pictures"], seen.measured[f"{part}_not_finite"] = len(looked), bad
        if bad:
            numbers = {"bad": bad, "pictures": len(looked), "part": part, **_which(patient, looked, part)}
            seen.findings.append(Finding("nan_in_data", 1.0, numbers, ends=True))
    return seen


def _which(patient: Patient, looked: Glance, part: str) -> dict[str, Any]:
    """The first bad picture: its row where rows can be looked up, else where it came in the epoch."""
    place = int(looked.is_bad.nonzero()[0])
    label = int(looked.labels[place])
    row = _row(patient, label) if part == "train" else None
    if row is not None:
        return {"which": f"dataset[{row}]", "label": label}
    return {"which": f"batch {place // looked.batch}, [{place % looked.batch}]", "label": label}


def _row(patient: Patient, label: int) -> int | None:
    rows = patient.rows
    if rows is None or len(rows) > MOST_ROWS:
        return None
    began = time.perf_counter()
    for number in range(len(rows)):
        row = rows[number]
        if not isinstance(row, tuple | list) or not isinstance(row[0], torch.Tensor):
            return None
        if row[0].is_floating_point() and not bool(row[0].isfinite().all()) and _class_of(row[1]) == label:
            return number
        if time.perf_counter() - began > GLANCE_SECONDS:
            return None
    return None


def _class_of(label: Any) -> int:
    """Of shares, the class with the largest."""
    shares = torch.as_tensor(label)
    return int(shares.argmax()) if shares.numel() > 1 else int(shares)
