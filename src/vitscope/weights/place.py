"""A folder takes its place all at once: made beside it under a hidden name, then exchanged with what was there."""

from __future__ import annotations

import ctypes
import os
import secrets
import shutil
import sys
from pathlib import Path

AT_FDCWD, RENAME_EXCHANGE = -100, 2  # <fcntl.h>, <linux/fs.h>


def make_hidden_beside(folder: Path) -> Path:
    """A new folder on the same disk, open to whom the umask says."""
    made = folder.parent / f".{folder.name}.{secrets.token_hex(8)}.tmp"
    made.mkdir()
    return made


def flush(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def swap(temporary: Path, folder: Path) -> None:
    """Put the finished folder in place; the old one goes only after the new one stands.

    On Linux the two change places in one step, so a process killed at any moment leaves a whole model there (and at
    worst a hidden `.NAME.*.tmp` beside it). Where the system cannot do that, the old folder steps aside first; killed
    just then, it is found in `.NAME.*.tmp/model`.
    """
    if not folder.exists():
        temporary.rename(folder)
    elif exchange(temporary, folder):
        shutil.rmtree(temporary, ignore_errors=True)
    else:
        _step_aside(temporary, folder)


def exchange(first: Path, second: Path) -> bool:
    """Let two names change places in one step; False, and nothing done, where the system cannot."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    names = os.fsencode(first), os.fsencode(second)
    return renameat2(AT_FDCWD, names[0], AT_FDCWD, names[1], ctypes.c_uint(RENAME_EXCHANGE)) == 0


def _step_aside(temporary: Path, folder: Path) -> None:
    old = make_hidden_beside(folder)
    try:
        folder.rename(old / "model")
        temporary.rename(folder)
    except BaseException:
        if (old / "model").exists():
            (old / "model").rename(folder)
        old.rmdir()
        raise
    shutil.rmtree(old, ignore_errors=True)
