"""Ctrl-C and SIGTERM: the first asks the run to save and leave, the second Ctrl-C leaves at once.

Imports no torch, so that a signal is heard from the first moment on.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

from vitscope.core.errors import EXIT_INTERRUPTED, EXIT_TERMINATED

EXIT_CODES = {signal.SIGINT: EXIT_INTERRUPTED, signal.SIGTERM: EXIT_TERMINATED}
PAUSE = 1000
"""In place of a signal's number: who started the run wants it to save and leave here."""


class StopFlag:
    """Raised by a signal, asked between steps: `with StopFlag() as stop: ... if stop: save and leave`.

    Outside the main thread, where Python hears no signals, it can only be raised by hand (`stop.raise_flag(...)`).
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self.stays_deaf = False
        """Whether SIGTERM goes unheard from the block's end to the process's: when the first of several processes has
        left, torchrun sends it to the others, whose exit codes it would spoil."""
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopFlag:
        if threading.current_thread() is threading.main_thread():
            for number in EXIT_CODES:
                self._before[number] = signal.signal(number, self._hear)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            stays = self.stays_deaf and number == signal.SIGTERM
            signal.signal(number, signal.SIG_IGN if stays else handler)
        self._before = {}

    def __bool__(self) -> bool:
        return self.signal is not None

    @property
    def is_paused(self) -> bool:
        """Raised by `pause`, and by no signal since."""
        return self.signal == PAUSE

    @property
    def exit_code(self) -> int:
        return 0 if self.signal is None or self.is_paused else EXIT_CODES[signal.Signals(self.signal)]

    @property
    def cause(self) -> str:
        if self.is_paused:
            return "the plan"
        return "Ctrl-C" if self.signal == signal.SIGINT else "SIGTERM"

    def raise_flag(self, number: int = signal.SIGTERM) -> None:
        self.signal = number

    def pause(self) -> None:
        """Save and leave, to go on later: a signal that was heard before still counts."""
        if self.signal is None:
            self.signal = PAUSE

    def lower(self) -> None:
        """After a pause: go on. A signal stays."""
        if self.is_paused:
            self.signal = None

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self.signal == signal.SIGINT and number == signal.SIGINT:
            raise KeyboardInterrupt  # asked twice
        self.signal = number
