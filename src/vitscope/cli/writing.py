"""What cannot be written is told as such: a full disk, a place nobody may write to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vitscope.core.errors import VitscopeError


@contextmanager
def writing(path: Path | None, *, flag: str = "--out") -> Iterator[None]:
    """Around what writes to `path`, which `flag` names; None where nothing is written."""
    try:
        yield
    except OSError as error:
        if path is None:
            raise
        why = error.strerror or str(error)
        raise VitscopeError(f"cannot write: {why}", where=str(path), fix=f"give another {flag}") from error
