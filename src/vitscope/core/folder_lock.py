"""One writer at a time: a lock on a run folder that ends with the process, however it ends."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from vitscope.core.errors import UsageError
from vitscope.core.run_layout import LOCK

try:
    import fcntl
except ImportError:  # Windows; there the heartbeat has to do
    fcntl = None


class FolderLock:
    """Holds one folder at most, from `take` to `release`. Where the file system knows no locks, nothing is held.

    The lock is the process's own: its workers do not inherit it, so none of them can outlive it as its holder.
    """

    def __init__(self) -> None:
        self._file: int | None = None

    def take(self, folder: Path) -> None:
        """Refuses a folder that another process holds."""
        if fcntl is None or self._file is not None:
            return
        try:
            file = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError:
            return
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            os.close(file)
            raise UsageError(
                f"another process is writing to '{folder}'", fix="wait for it, or stop it first; or another --out"
            ) from None
        except OSError:
            os.close(file)
            return
        self._file = file

    def release(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.close(self._file)
            self._file = None
