"""Files that are either the old or the new version, never half of one."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path
from typing import Any

from vitscope.core import strict_json


def write_atomically(path: Path, content: bytes) -> None:
    """Write beside `path`, flush to the disk, then rename over it."""
    temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        # "x" lets the system apply the umask; to ask for the umask is to change it, for all threads.
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_json(path: Path, data: Any) -> None:
    """Strict JSON: NaN and the infinities become text (`strict_json`)."""
    text = json.dumps(strict_json.encode(data), indent=2, ensure_ascii=False, allow_nan=False)
    write_atomically(path, (text + "\n").encode())


def append_line(path: Path, line: str) -> None:
    """Add one line in one write, so that a crash leaves at most half of it."""
    with path.open("ab", buffering=0) as file:
        file.write(line.encode() + b"\n")
