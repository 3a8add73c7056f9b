"""The run's figures as TensorBoard reads them."""

from __future__ import annotations

import functools
import importlib
import time
from pathlib import Path
from typing import Any

from vitscope.train.show.event_file import EventFile
from vitscope.train.show.observer import Observer

FLUSH_S = 5.0
"""How long a figure may wait before it can be seen."""
_WORDS = {"lr": "LR", "ema": "EMA", "l1": "L1", "grad": "Grad"}


class TensorBoard(Observer):
    """Writes `Train/Loss` and the like for every step, `Val/...` and `Test/...` at the step they were measured.

    `purge_step`: of a run that is resumed, the first step made anew; TensorBoard forgets what it has from there on.
    """

    def __init__(self, folder: Path, purge_step: int | None = None) -> None:
        # Its messages are made when it is imported, out of sight of a type checker.
        self._messages: Any = importlib.import_module("tensorboard.compat.proto.event_pb2")
        self._summaries: Any = importlib.import_module("tensorboard.compat.proto.summary_pb2")
        self._file = EventFile(Path(folder))
        self._each_step: set[str] = set()
        self._flushed = time.monotonic()
        self._last_step = 0
        self._add(file_version="brain.Event:2")
        if purge_step is not None:
            self._forget_from(purge_step)
        self._file.flush()

    def steps(self, rows: list[dict[str, Any]]) -> None:
        if rows and rows[0]["step"] <= self._last_step:  # training went back to an earlier checkpoint
            self._forget_from(rows[0]["step"])
        for row in rows:
            self._last_step = row["step"]
            figures = _figures(row)
            self._each_step.update(figures)
            self._write(row["step"], figures)

        self._flush()

    def epoch(self, row: dict[str, Any]) -> None:
        # The epoch's mean loss would stand among the steps' under the same name.
        figures = {key: value for key, value in _figures(row).items() if key not in self._each_step}
        self._write(row["step"], figures)
        self._flush()

    def close(self) -> None:
        self._file.close()

    def _write(self, step: int, figures: dict[str, float]) -> None:
        if figures:
            value = self._summaries.Summary.Value
            values = [value(tag=tag_of(key), simple_value=number) for key, number in figures.items()]
            self._add(step=step, summary=self._summaries.Summary(value=values))

    def _forget_from(self, step: int) -> None:
        log = self._messages.SessionLog
        self._add(step=step, session_log=log(status=log.START))

    def _add(self, **event: Any) -> None:
        self._file.add(self._messages.Event(wall_time=time.time(), **event).SerializeToString())

    def _flush(self) -> None:
        if time.monotonic() - self._flushed >= FLUSH_S:
            self._file.flush()
            self._flushed = time.monotonic()


@functools.cache
def tag_of(key: str) -> str:
    """The name under which TensorBoard has a metric.

    >>> tag_of("train/grad_norm"), tag_of("train/lr"), tag_of("val/top5_accuracy")
    ('Train/GradNorm', 'Train/LR', 'Val/Top5Accuracy')
    """
    parts = (
        "".join(_WORDS.get(word, word[:1].upper() + word[1:]) for word in part.split("_")) for part in key.split("/")
    )
    return "/".join(parts)


def _figures(row: dict[str, Any]) -> dict[str, float]:
    """What can be drawn: numbers under names with a part before a slash."""
    return {key: float(value) for key, value in row.items() if "/" in key and isinstance(value, int | float)}
