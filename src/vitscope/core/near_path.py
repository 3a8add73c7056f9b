"""The path that was meant by one that leads nowhere: each part that is not there is taken for the nearest beside it."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from vitscope.core.suggest import nearest

MOST_BESIDE = 1000
"""Entries of a folder that are looked at."""


def meant_path(typed: str) -> str | None:
    """'photos/tenhc/1.jpg' -> 'photos/tench/1.jpg', also where it was typed with `\\`. None: it leads somewhere as it
    stands, or nothing is near."""
    try:
        if Path(typed).expanduser().exists():
            return None
        return _near(typed.replace("\\", "/")) or _near(typed)
    except (OSError, ValueError, RuntimeError):  # no name a file could have, a closed folder, nobody's home
        return None


def did_you_mean_path(typed: str) -> str | None:
    """The same as a sentence."""
    meant = meant_path(typed)
    if meant is None:
        return None
    slash = "use / between folders: " if meant == typed.replace("\\", "/") else ""
    return f"{slash}did you mean '{meant}'?"


def _near(typed: str) -> str | None:
    parts = Path(typed).expanduser().parts
    found = Path()
    for part in parts:
        here = found / part
        if not here.exists():
            beside = [entry.name for entry in islice(found.iterdir(), MOST_BESIDE)]
            close = nearest(part, beside, limit=1)
            if not close:
                return None
            here = found / close[0]
        found = here
    return str(found)
