"""Opening a picture with Pillow: its warnings collected for each thread, its parsers kept from reading for ever.

Threads open pictures side by side. The filters of warnings and Pillow's limit belong to the whole process, so the first
thread that enters sets them and the last one that leaves puts them back; nobody waits for another's picture.
"""

from __future__ import annotations

import io
import os
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from PIL import Image

READS = 100_000
"""Pieces a file may be read in, however small it is: 10,000 chunks of a PNG take fewer."""
BYTES_PER_READ = 512
"""Large files may have more."""
BYTES_PER_READ_OF_GIF = 64
"""Its pieces have up to 255 bytes, with two reads for each."""


class LimitedFile(io.BytesIO):
    """Bytes as a file. Parsers walk chunks and markers one by one, in Python: millions of empty ones would keep a
    thread busy for minutes. Reading in more pieces than any sound picture needs raises `error`."""

    def __init__(self, content: bytes | bytearray | memoryview, error: Exception) -> None:
        super().__init__(content)
        each = BYTES_PER_READ_OF_GIF if bytes(content[:3]) == b"GIF" else BYTES_PER_READ
        self._left, self._error = READS + len(content) // each, error

    def read(self, size: int | None = -1, /) -> bytes:
        self._left -= 1
        if self._left < 0:
            raise self._error
        return super().read(size)


class _Quiet:
    """What is changed while any thread is with Pillow."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._filters: warnings.catch_warnings[Any] | None = None
        self._limit: int | None = None
        self._own = threading.local()

    @contextmanager
    def __call__(self) -> Iterator[list[str]]:
        """Pillow's warnings of this thread, as texts; its own limit of pixels is off."""
        before = getattr(self._own, "told", None)
        told: list[str] = []
        self._enter()
        self._own.told = told
        try:
            yield told
        finally:
            self._own.told = before
            self._leave()

    def after_fork(self) -> None:
        """In the child, only one thread goes on: the others can neither leave nor give the lock back."""
        self._lock = threading.Lock()
        self._inside = int(getattr(self._own, "told", None) is not None)
        if not self._inside:
            self._put_back()

    def _enter(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside > 1:
                return
            self._filters = warnings.catch_warnings()
            self._filters.__enter__()
            warnings.simplefilter("always")
            others = warnings.showwarning

            def show(message: Warning | str, *place: Any, **more: Any) -> None:
                told = getattr(self._own, "told", None)
                if told is None:  # of a thread that is not with Pillow
                    others(message, *place, **more)
                else:
                    told.append(" ".join(str(message).split()))

            warnings.showwarning = show
            self._limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None

    def _leave(self) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._put_back()

    def _put_back(self) -> None:
        if self._filters is not None:
            self._filters.__exit__(None, None, None)
            self._filters = None
            Image.MAX_IMAGE_PIXELS = self._limit


pillow_quiet = _Quiet()
if hasattr(os, "register_at_fork"):  # a worker forked while another thread decodes must not wait for that thread
    os.register_at_fork(after_in_child=pillow_quiet.after_fork)
