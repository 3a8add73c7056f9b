"""What a path leads to, where a name that is too long or a folder that is closed is told as such."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Literal

from vitscope.core.errors import UsageError

SHOWN = 100


def what_lies_at(path: Path) -> Literal["folder", "file", "other"] | None:
    """None: nothing; 'other': a pipe or a device, which is neither folder nor plain file."""
    try:
        found = path.stat()
        if stat.S_ISDIR(found.st_mode) and not os.access(path, os.R_OK | os.X_OK):
            raise PermissionError(None, "Permission denied")
    except (FileNotFoundError, NotADirectoryError, ValueError):  # the last: no path could be so called
        return None
    except OSError as error:
        name = str(path)
        shown = name if len(name) <= SHOWN else f"{name[:SHOWN]}..."
        raise UsageError(
            f"the path cannot be looked at: {error.strerror or error}",
            where=shown,
            fix="give one that can be opened and read",
        ) from None
    if stat.S_ISDIR(found.st_mode):
        return "folder"
    return "file" if stat.S_ISREG(found.st_mode) else "other"
