"""A weights file, opened once: header, tensors and hash are all of this one file, whatever is put in its place."""

from __future__ import annotations

import hashlib
import os
import threading
import weakref
from io import BufferedReader
from pathlib import Path

from vitscope.core.errors import VitscopeError

WRITTEN_TO = "wait until whoever writes it is done, then load again"
READS_ANYWHERE = hasattr(os, "preadv")
"""Whether the system reads from a place without moving there; macOS before 11 and Windows do not."""


class OpenFile:
    """One file for as long as it is needed.

    Renaming another file to its place does not touch it. Whoever writes into the file itself does, and that is refused.
    """

    def __init__(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        self._release = weakref.finalize(self, os.close, descriptor)  # who reads a header only need not close it
        self.path = path
        self.file: BufferedReader = open(descriptor, "rb", closefd=False)  # noqa: SIM115
        self.lock = threading.RLock()
        """Held by whoever moves the position of `file` after it was opened."""
        self._begun = self._state()
        self.size = self._begun[1]

    def read_at(self, place: int, count: int) -> bytes:
        """As many bytes from there, or what there is."""
        room = bytearray(max(0, min(count, self.size - place)))  # a header may name any number
        return bytes(memoryview(room)[: self._filled(place, memoryview(room))])

    def read_into(self, place: int, room: memoryview) -> bool:
        """Fill `room` from there; False where the file ends before."""
        return self._filled(place, room) == len(room)

    def _filled(self, place: int, room: memoryview) -> int:
        """How many bytes there were. Threads may ask at the same time, so the file's own position is left alone."""
        done = 0
        while done < len(room):  # a system may give less than was asked for, and gives at most 2 GB at once
            if READS_ANYWHERE:
                count = os.preadv(self.file.fileno(), [room[done:]], place + done)
            else:
                with self.lock:
                    self.file.seek(place + done)
                    count = self.file.readinto(room[done:])
            if not count:
                break
            done += count
        return done

    def sha256(self) -> str:
        """Of the whole, after what was read of it: neither may have been written to meanwhile."""
        with self.lock:
            self.file.seek(0)
            found = hashlib.file_digest(self.file, "sha256").hexdigest()
        self.refuse_change()
        return found

    def refuse_change(self) -> None:
        if self._state() != self._begun:
            raise VitscopeError("the file was written to while it was read", where=str(self.path), fix=WRITTEN_TO)

    def is_in_place(self) -> bool:
        """Whether who opens its path now gets this very file, unchanged."""
        try:
            found = self.path.stat()
        except OSError:
            return False
        return os.path.samestat(found, os.fstat(self.file.fileno())) and self._state() == self._begun

    def _state(self) -> tuple[int, int]:
        found = os.fstat(self.file.fileno())
        return found.st_mtime_ns, found.st_size

    def close(self) -> None:
        self.file.close()
        self._release()
