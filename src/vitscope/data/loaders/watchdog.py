"""Ends what takes too long from outside: for waits that have no end of their own and cannot be given one."""

from __future__ import annotations

import threading
import time
import weakref
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
            told = weakref.ref(self), self._stopped, min(0.5, self.patience_s / 4)
            self._thread = threading.Thread(target=_watch, args=told, name="watchdog", daemon=True)
            self._thread.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._since = None

    def stop(self) -> None:
        """The next wait begins anew."""
        self._stopped.set()
        self._stopped, self._thread = threading.Event(), None

    def look(self) -> bool:
        """Whether it had to bite."""
        since = self._since
        if since is None or time.monotonic() - since <= self.patience_s:
            return False
        self.has_bitten = True
        self.bite()
        return True


def _watch(watchdog: weakref.ref[Watchdog], stopped: threading.Event, every_s: float) -> None:
    """Holds nothing while it sleeps: with the watchdog whatever it is for can be forgotten."""
    while not stopped.wait(every_s):
        found = watchdog()
        if found is None or found.look():
            return
        del found
