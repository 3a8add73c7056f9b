"""What processes leave for each other to read. It stands in the store where they met, so it can be read even when one
of them has gone: pictures left out, for the first process to record, and the error with which a process ends."""

from __future__ import annotations

import contextlib
import pickle
import time
from typing import Any

from vitscope.core.errors import VitscopeError

LAST_WORDS_SECONDS = 3.0
"""How long whoever has lost the others looks for an error. It was left before the connection ended."""
ERROR = "error"


class Board:
    """As one process sees it. What goes up is pickled: all of it comes from processes of the same run. Where the store
    has gone with the process that held it, nothing is written or read: what ended that one is the error to tell."""

    def __init__(self, store: Any, rank: int, world: int) -> None:
        self.store, self.rank = store, rank
        self._written = 0
        self._read = dict.fromkeys(range(world), 0)

    def put_up(self, note: Any) -> None:
        """First the note, then how many there are: what is counted can be read."""
        with contextlib.suppress(RuntimeError):
            self.store.set(f"note-{self.rank}-{self._written + 1}", pickle.dumps(note).hex())
            self.store.set(f"notes-{self.rank}", str(self._written + 1))
            self._written += 1

    def unread(self) -> list[Any]:
        """The notes since the last time, process by process."""
        found = []
        with contextlib.suppress(RuntimeError):
            for rank in self._read:
                count = int(self.store.get(f"notes-{rank}")) if self.store.check([f"notes-{rank}"]) else 0
                while self._read[rank] < count:
                    found.append(self._taken(f"note-{rank}-{self._read[rank] + 1}"))
                    self._read[rank] += 1
        return found

    def leave_error(self, error: VitscopeError) -> None:
        """The first one stays: what comes after it is mostly its consequence."""
        with contextlib.suppress(RuntimeError):
            self.store.compare_set(ERROR, "", pickle.dumps((self.rank, error)).hex())

    def error_left(self) -> tuple[int, VitscopeError] | None:
        """Which process ended with which error; None where it went without a word."""
        until = time.monotonic() + LAST_WORDS_SECONDS
        with contextlib.suppress(RuntimeError):
            while True:
                if self.store.check([ERROR]):
                    return self._taken(ERROR)
                if time.monotonic() > until:
                    return None
                time.sleep(0.05)
        return None

    def _taken(self, key: str) -> Any:
        return pickle.loads(bytes.fromhex(self.store.get(key).decode()))
