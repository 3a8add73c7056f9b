"""The run's figures as TensorBoard reads them."""

from __future__ import annotations

import importlib
import time
from pathlib import Path
from typing import Any

from vitscope.train.observer import Observer

FLUSH_S = 10
"""How long a figure may wait before it can be seen."""
_WORDS = {"lr": "LR", "ema": "EMA", "l1": "L1", "grad": "Grad"}


class TensorBoard(Observer):
    """Writes `Train/Loss` and the like for every step, `Val/...` and `Test/...` at the step they were measured.

    `purge_step`: of a run that is resumed, the first step made anew; TensorBoard forgets what it has from there on.
    """

    def __init__(self, folder: Path, purge_step: int | None = None) -> None:
        # Its messages are made when it is imported, out of sight of a type checker.
        event_pb2: Any = importlib.import_module("tensorboard.compat.proto.event_pb2")
        summary_pb2: Any = importlib.import_module("tensorboard.compat.proto.summary_pb2")
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._event, self._summary = event_pb2, summary_pb2
        self._writer = EventFileWriter(str(folder), flush_secs=FLUSH_S)
        self._each_step: set[str] = set()
        if purge_step is not None:
            log = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
            self._writer.add_event(event_pb2.Event(wall_time=time.time(), step=purge_step, session_log=log))

    def steps(self, rows: list[dict[str, Any]]) -> None:
        for row in rows:
            figures = _figures(row)
            self._each_step.update(figures)
            self._write(row["step"], figures)

    def epoch(self, row: dict[str, Any]) -> None:
        # The epoch's mean loss would stand among the steps' under the same name.
        figures = {key: value for key, value in _figures(row).items() if key not in self._each_step}
        self._write(row["step"], figures)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()

    def _write(self, step: int, figures: dict[str, float]) -> None:
        if not figures:
            return
        values = [self._summary.Summary.Value(tag=tag_of(key), simple_value=value) for key, value in figures.items()]
        summary = self._summary.Summary(value=values)
        self._writer.add_event(self._event.Event(wall_time=time.time(), step=step, summary=summary))


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
