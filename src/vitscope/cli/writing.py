"""Where files may be written. What cannot be is told as such: a folder, a full disk, a place nobody may write to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vitscope.core.errors import UsageError, VitscopeError


@contextmanager
def writing(path: Path | None, *, flag: str = "--out") -> Iterator[None]:
    """Around what writes to `path`, which `flag` names; None where nothing is written. Its folder is made."""
    try:
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        if path is None:
            raise
        why = error.strerror or str(error)
        raise VitscopeError(f"cannot write: {why}", where=str(path), fix=f"give another {flag}") from error


def refuse_place(path: Path, *, flag: str = "--out") -> None:
    """Before work is done for it: a folder is no file, and below a file there is no folder."""
    above = next(place for place in path.absolute().parents if place.exists())
    if path.is_dir() or not above.is_dir():
        what = "it is a folder" if path.is_dir() else f"'{above}' is no folder"
        raise UsageError(f"{flag} cannot be written: {what}", where=str(path), fix=f"give another {flag}")
