"""Ends what takes too long from outside: for waits that have no end of their own and cannot be given one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType


class Watchdog:
    """`with watchdog: wait()`; `bite` is called, in a thread of its own, when that has lasted `patience_s` seconds, and
    is to make the waiting fail. The thread lives until `stop`, as one for each wait would cost more than most waits."""

    def __init__(self, patience_s: float, bite: Callable[[], None]) -> None:
        self.patience_s, self.bite = patience_s, bite
        self.has_bitten = False
        """In the last wait."""
        self._since: float | None = None
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> None:
        self.has_bitten, self._since = False, time.monotonic()
        if self._thread is None:
            self._stopped.clear()
            self._thread = threading.Thread(target=self._watch, args=(self._stopped,), name="watchdog", daemon=True)
            self._thread.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._since = None

    def stop(self) -> None:
        """The next wait begins anew."""
        self._stopped.set()
        self._stopped, self._thread = threading.Event(), None

    def _watch(self, stopped: threading.Event) -> None:
        while not stopped.wait(min(0.5, self.patience_s / 4)):
            since = self._since
            if since is not None and time.monotonic() - since > self.patience_s:
                self.has_bitten = True
                self.bite()
                return
