"""How far training is: a live line on a terminal, plain lines anywhere else. Never on standard output."""

from __future__ import annotations

import statistics
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any, TextIO

from vitscope.train.show.observer import Observer
from vitscope.train.show.progress_line import LiveLine, clock_time, figures_of

PLAIN_EVERY_S = 30.0
"""Between two plain lines within an epoch."""
REMEMBERED = 7
"""Epochs whose median length the time left is told by."""


class Progress(Observer):
    """One line per epoch stays; the best so far are marked."""

    def __init__(
        self,
        *,
        epochs: int,
        steps_per_epoch: int,
        batch_size: int,
        start_step: int = 0,
        stream: TextIO | None = None,
        terminal: bool | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._epochs, self._per_epoch, self._batch_size = epochs, steps_per_epoch, batch_size
        self._stream = sys.stderr if stream is None else stream
        is_terminal = self._stream.isatty() if terminal is None else terminal
        self._live = LiveLine.on(self._stream, terminal=is_terminal)
        self._clock = clock
        self._step = self._first_step = start_step
        self._began = self._last_line = clock()
        self._lengths: deque[float] = deque(maxlen=REMEMBERED)
        self._lr: float | None = None

    def steps(self, rows: list[dict[str, Any]]) -> None:
        if not rows:
            return
        self._step = int(rows[-1]["step"])
        if self._step <= self._first_step:  # training went back to an earlier checkpoint
            self._first_step, self._began = int(rows[0]["step"]) - 1, self._last_line
        self._lr = rows[-1].get("train/lr", self._lr)
        now = self._clock()
        if self._live is not None:
            within = self._step - (self._epoch_number - 1) * self._per_epoch
            self._live.show(
                f"epoch {self._epoch_number}/{self._epochs}", within, self._per_epoch, self._current(rows[-1], now), now
            )
        elif now - self._last_line >= PLAIN_EVERY_S:
            self._last_line = now
            figures = "   ".join(self._current(rows[-1], now))
            self._write(f"step {self._step:,}/{self._epochs * self._per_epoch:,}   {figures}")

    def epoch(self, row: dict[str, Any]) -> None:
        if any(key.startswith("test/") for key in row):
            self._write(f"test   {figures_of(row, 'test')}")
            return
        now = self._clock()
        self._step = int(row["step"])
        made = self._step - self._first_step
        if made > 0:
            self._lengths.append((now - self._began) * self._per_epoch / made)  # the first may be the rest of one
        self._first_step, self._began, self._last_line = self._step, now, now
        self._write("   ".join(self._epoch_parts(row)))

    def say(self, text: str) -> None:
        self._write(text)

    def close(self) -> None:
        if self._live is not None:
            self._live.close()

    @property
    def seconds_left(self) -> float | None:
        """Until the last epoch is over, evaluations included; None before anything was measured."""
        now = self._clock()
        left = self._epochs * self._per_epoch - self._step
        if self._lengths:
            length = statistics.median(self._lengths)
            since = (now - self._began) if self._step == self._first_step else 0.0
            return max(0.0, left / self._per_epoch * length - since)
        made = self._step - self._first_step
        return left * (now - self._began) / made if made > 0 else None

    @property
    def _epoch_number(self) -> int:
        """From 1; a step belongs to the epoch it is made in, the last of an epoch too."""
        return max(1, -(-self._step // self._per_epoch))

    def _current(self, row: dict[str, Any], now: float) -> list[str]:
        parts = [figures_of(row, "train"), self._lr_text()]
        made, seconds = self._step - self._first_step, now - self._began
        if seconds > 0:
            parts.append(f"{made * self._batch_size / seconds:,.0f} images/s")
        parts.append(self._left_text())
        return [part for part in parts if part]

    def _epoch_parts(self, row: dict[str, Any]) -> list[str]:
        number = f"{self._epoch_number:>{len(str(self._epochs))}}"
        parts = [f"epoch {number}/{self._epochs}", f"train {figures_of(row, 'train')}"]
        if any(key.startswith("val/") for key in row):
            parts.append(f"val {figures_of(row, 'val')}")
        parts.append(self._lr_text())
        rate = row.get("train/images_per_s")
        if isinstance(rate, int | float):
            parts.append(f"{rate:,.0f} images/s")
        if self._step < self._epochs * self._per_epoch:
            parts.append(self._left_text())
        if row.get("best"):
            parts.append("best")
        return [part for part in parts if part]

    def _lr_text(self) -> str:
        return "" if self._lr is None else f"lr {self._lr:.2g}"

    def _left_text(self) -> str:
        left = self.seconds_left
        return "" if left is None else f"{clock_time(left)} left"

    def _write(self, line: str) -> None:
        if self._live is not None:
            self._live.print(line)
        else:
            self._stream.write(line + "\n")
            self._stream.flush()
