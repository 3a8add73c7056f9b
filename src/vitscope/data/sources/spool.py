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
from vitscope.data.decode import bad_image, is_passing
from vitscope.data.sources.source import SourceLostError, Stored

PICTURES, BOUNDS = "pictures.bin", "bounds.npy"
_log = logging.getLogger("vitscope")


class Spool:
    """Reads from a finished spool. The file stays mapped, so that it may even be removed; a process that gets a
    pickled copy maps it anew."""

    def __init__(self, folder: Path, errors: dict[str, str]) -> None:
        self.folder = folder
        self._errors = errors
        self._bounds = np.load(folder / BOUNDS)
        self._pictures = _mapped(folder)

    @classmethod
    def make(
        cls, content_hash: str, pictures: Iterable[tuple[int, Stored | Exception]], count: int, *, keep: bool
    ) -> Spool:
        """Copy the pictures, given in rising order, unless that was done before. What is not to be kept, or cannot
        be, lives as long as this process."""
        if not keep:
            return cls._make_for_now(pictures, count)
        key = cache.key_of("spool 2", content_hash)
        with cache.making("spool", key):
            found = cache.find("spool", key)
            if found is not None:
                return cls(found[0], found[1]["errors"])
            try:
                entry = cache.Writing("spool", key)
            except OSError as error:
                cache.say_not_kept(error)
                return cls._make_for_now(pictures, count)
            try:
                errors, passing = _write(entry.folder, pictures, count)
                if passing:  # may be read next time: not to be remembered
                    atexit.register(shutil.rmtree, entry.folder, ignore_errors=True)
                    return cls(entry.folder, errors)
                return cls(entry.finish(errors=errors), errors)
            except OSError as error:
                entry.abandon()
                raise _no_room(error, entry.home) from None
            except BaseException:
                entry.abandon()
                raise

    @classmethod
    def _make_for_now(cls, pictures: Iterable[tuple[int, Stored | Exception]], count: int) -> Spool:
        folder = Path(tempfile.mkdtemp(prefix="vitscope-spool-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        try:
            return cls(folder, _write(folder, pictures, count)[0])
        except OSError as error:
            raise _no_room(error, folder) from None

    def read(self, index: int) -> bytes:
        if str(index) in self._errors:
            raise OSError(self._errors[str(index)])
        return self._pictures[self._bounds[index] : self._bounds[index + 1]].tobytes()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pictures": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._pictures = _mapped(self.folder)


def _mapped(folder: Path) -> np.ndarray:
    try:
        return np.memmap(folder / PICTURES, dtype=np.uint8, mode="r")
    except OSError as error:
        raise SourceLostError(
            f"the copy of the pictures cannot be read: {bad_image(error).what}",
            where=str(folder),
            fix="start again: the copy is made anew",
        ) from None


def _no_room(error: OSError, place: Path) -> DataError:
    return DataError(
        f"no room for a copy of the pictures: {bad_image(error).what}",
        where=str(place),
        fix="free some space, or set VITSCOPE_CACHE (TMPDIR, without a cache) to a folder on a larger disk",
    )


def _write(folder: Path, pictures: Iterable[tuple[int, Stored | Exception]], count: int) -> tuple[dict[str, str], bool]:
    """Both files; what could not be read, by number; and whether some of that may pass."""
    lengths = np.zeros(count, dtype=np.int64)
    errors: dict[str, str] = {}
    passing = False
    with (folder / PICTURES).open("wb") as file:
        last = -1
        for index, content in pictures:
            if index <= last:
                raise ValueError(f"pictures must come in rising order, {index} came after {last}")
            last = index
            if isinstance(content, Exception):
                errors[str(index)] = bad_image(content).what
                passing = passing or is_passing(content)
                continue
            lengths[index] = file.write(bytes(content))
        if file.tell() == 0:
            file.write(b"\0")  # nothing cannot be mapped
    np.save(folder / BOUNDS, np.concatenate([[0], np.cumsum(lengths)]))
    return errors, passing
