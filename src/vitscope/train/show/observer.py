"""Who watches a run without being part of it: progress on a terminal, TensorBoard, a tuner."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

log = logging.getLogger("vitscope")


class Observer:
    """Every method does nothing; extend what you need. Rows are those of metrics.jsonl and are not to be changed."""

    def steps(self, rows: list[dict[str, Any]]) -> None:
        """Some optimiser updates were made, one row each."""

    def epoch(self, row: dict[str, Any]) -> None:
        """An epoch ended (`train/...`, and `val/...` where it was evaluated), or the run did (`test/...`)."""

    def say(self, text: str) -> None:
        """A remark for the person who watches."""

    @property
    def seconds_left(self) -> float | None:
        """How long the run will last from now, as far as this observer can tell."""
        return None

    def close(self) -> None:
        """The run is over; nothing follows."""


class Observers(Observer):
    """Several as one. Whoever cannot write (a full disk, a closed terminal) is named once in the log and left out: a
    run does not end because nobody can watch it."""

    def __init__(self, watchers: Iterable[Observer]) -> None:
        self.watchers = list(watchers)

    def steps(self, rows: list[dict[str, Any]]) -> None:
        self._each(lambda watcher: watcher.steps(rows))

    def epoch(self, row: dict[str, Any]) -> None:
        self._each(lambda watcher: watcher.epoch(row))

    def say(self, text: str) -> None:
        self._each(lambda watcher: watcher.say(text))

    def close(self) -> None:
        self._each(lambda watcher: watcher.close())
        self.watchers.clear()

    @property
    def seconds_left(self) -> float | None:
        known = (watcher.seconds_left for watcher in self.watchers)
        return next((seconds for seconds in known if seconds is not None), None)

    def _each(self, call: Callable[[Observer], None]) -> None:
        for watcher in list(self.watchers):
            try:
                call(watcher)
            except OSError as error:
                self.watchers.remove(watcher)
                log.warning("%s cannot go on: %s; the run does", type(watcher).__name__, error)
