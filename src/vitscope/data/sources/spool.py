"""Encoded pictures one after another in one file, with a table of where each begins: single ones at once, from any
process, mapped and never loaded."""

from __future__ import annotations

import atexit
import logging
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from vitscope.core.errors import DataError
from vitscope.data import cache
from vitscope.data.sources.source import Stored

PICTURES, BOUNDS = "pictures.bin", "bounds.npy"
_log = logging.getLogger("vitscope")


class Spool:
    """Reads from a finished spool. Pickles as its path: each process maps the file anew."""

    def __init__(self, folder: Path, errors: dict[str, str]) -> None:
        self.folder = folder
        self._errors = errors
        self._bounds = np.load(folder / BOUNDS)
        self._pictures: np.memmap[Any, Any] | None = None

    @classmethod
    def make(cls, content_hash: str, pictures: Iterable[tuple[int, Stored | Exception]], count: int) -> Spool:
        """Copy the pictures, given in rising order, unless that was done before. Without a cache folder that can be
        written, the copy lives as long as this process."""
        key = cache.key_of("spool 1", content_hash)
        found = cache.find("spool", key)
        if found is not None:
            return cls(found[0], found[1]["errors"])
        try:
            entry = cache.Writing("spool", key)
        except OSError as error:
            _log.warning("nothing can be kept in the cache (%s): a temporary copy is used", error)
            folder = Path(tempfile.mkdtemp(prefix="vitscope-spool-"))
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            return cls(folder, _write(folder, pictures, count))
        try:
            errors = _write(entry.folder, pictures, count)
            return cls(entry.finish(errors=errors), errors)
        except OSError as error:
            entry.abandon()
            raise DataError(
                f"no room for a copy of the pictures: {error}",
                where=str(entry.home),
                fix="free some space, or set VITSCOPE_CACHE to a folder on a larger disk",
            ) from None
        except BaseException:
            entry.abandon()
            raise

    def read(self, index: int) -> bytes:
        if str(index) in self._errors:
            raise OSError(self._errors[str(index)])
        if self._pictures is None:
            self._pictures = np.memmap(self.folder / PICTURES, dtype=np.uint8, mode="r")
        return self._pictures[self._bounds[index] : self._bounds[index + 1]].tobytes()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pictures": None}


def _write(folder: Path, pictures: Iterable[tuple[int, Stored | Exception]], count: int) -> dict[str, str]:
    """Both files; and what could not be read, by number."""
    lengths = np.zeros(count, dtype=np.int64)
    errors = {}
    with (folder / PICTURES).open("wb") as file:
        last = -1
        for index, content in pictures:
            if index <= last:
                raise ValueError(f"pictures must come in rising order, {index} came after {last}")
            last = index
            if isinstance(content, Exception):
                errors[str(index)] = str(content)
                continue
            lengths[index] = file.write(bytes(content))
        if file.tell() == 0:
            file.write(b"\0")  # nothing cannot be mapped
    np.save(folder / BOUNDS, np.concatenate([[0], np.cumsum(lengths)]))
    return errors
