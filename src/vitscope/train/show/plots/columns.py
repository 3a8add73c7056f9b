"""Columns of numbers out of the rows of metrics.jsonl, whatever a row lacks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

MOST_POINTS = 1500
"""More do not fit into a picture's width."""
_ONLY_IN_STEPS = ("train/lr", "train/grad_norm", "train/skipped")


Row = Mapping[str, Any]


def step_rows(rows: Iterable[Row], *, given_up: bool = False) -> list[Row]:
    """Rows of single optimiser updates; where training went back, without those that were given up."""
    found = [row for row in rows if any(key in row for key in _ONLY_IN_STEPS)]
    return found if given_up else _in_force(found)


def epoch_rows(rows: Iterable[Row]) -> list[Row]:
    """Rows at the end of an epoch; not the run's last one, which has the test's figures alone."""
    ends = (row for row in rows if not any(key in row for key in _ONLY_IN_STEPS))
    return _in_force([row for row in ends if any(key.startswith(("train/", "val/")) for key in row)])


def _in_force(rows: list[Row]) -> list[Row]:
    kept: list[Row] = []
    for row in rows:
        while kept and kept[-1]["step"] >= row["step"]:
            kept.pop()
        kept.append(row)
    return kept


def column(rows: Sequence[Row], key: str) -> np.ndarray:
    """(rows,) as float64; NaN where a row has no finite number under `key`."""
    values = np.array([_number(row.get(key)) for row in rows], dtype=np.float64)
    values[~np.isfinite(values)] = np.nan
    return values


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else float("nan")


def known(*columns: np.ndarray) -> tuple[np.ndarray, ...]:
    """The columns without the places where one of them is NaN."""
    there = np.logical_and.reduce([np.isfinite(values) for values in columns])
    return tuple(values[there] for values in columns)


def thinned(x: np.ndarray, y: np.ndarray, most: int = MOST_POINTS) -> tuple[np.ndarray, np.ndarray]:
    """At most about `most` points: means of neighbours."""
    width = -(-len(x) // most) if len(x) else 1
    if width == 1:
        return x, y
    starts = np.arange(0, len(x), width)
    counts = np.diff(np.append(starts, len(x)))
    return np.add.reduceat(x, starts) / counts, np.add.reduceat(y, starts) / counts


def extremes(x: np.ndarray, y: np.ndarray, most: int = 10 * MOST_POINTS) -> tuple[np.ndarray, np.ndarray, int]:
    """At most about `most` points: the smallest and the largest of so many neighbours, as the last number says. Nothing
    that stands out is lost."""
    width = 2 * -(-len(x) // most) if len(x) > most else 1
    if width == 1:
        return x, y, 1
    whole = len(x) // width * width
    bins = y[:whole].reshape(-1, width)
    starts = np.arange(0, whole, width)
    kept = np.concatenate([starts + bins.argmin(axis=1), starts + bins.argmax(axis=1), np.arange(whole, len(x))])
    kept = np.unique(kept)
    return x[kept], y[kept], width


def medians(x: np.ndarray, y: np.ndarray, window: int) -> tuple[np.ndarray, np.ndarray, int]:
    """A running median over `window` (odd) values, fewer at the ends. Of very many values it is taken bin by bin. Also
    returned: over how many values."""
    width = -(-len(x) // MOST_POINTS) if len(x) > window * MOST_POINTS // 10 else 1
    if width == 1:
        half = min(window, len(y)) // 2
        padded = np.pad(y, half, constant_values=np.nan)
        return x, np.nanmedian(np.lib.stride_tricks.sliding_window_view(padded, 2 * half + 1), axis=1), 2 * half + 1
    width = max(width, window)
    bins = range(0, len(x), width)
    middle = [np.median(x[start : start + width]) for start in bins]
    return np.array(middle), np.array([np.median(y[start : start + width]) for start in bins]), width
