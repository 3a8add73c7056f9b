"""Results go to standard output: as tables for people, as JSON for programs."""

from __future__ import annotations

import json
import sys
from typing import Any

from rich.console import Console
from rich.table import Table

WIDTH_OF_A_FILE = 140


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leave it to `main`: a reader that has seen enough is no failure."""
        raise BrokenPipeError


def console() -> Console:
    """A terminal's own width; a fixed one in a pipe or file, so that nothing is cut at 80."""
    if sys.stdout.isatty():
        return _Console(highlight=False)
    return _Console(highlight=False, width=WIDTH_OF_A_FILE, color_system=None)


def plain_table(*columns: str, right: tuple[str, ...] = (), title: str | None = None) -> Table:
    """A table without a box; columns named in `right` hold numbers."""
    table = Table(
        box=None, pad_edge=False, padding=(0, 2, 0, 0), title=title, title_justify="left", header_style="bold"
    )
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", no_wrap=column == columns[0])
    return table


def print_json(data: Any) -> None:
    sys.stdout.write(json.dumps(data, indent=2, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def in_bytes(count: float) -> str:
    """1536000 -> '1.5 MB'."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def in_millions(count: float) -> str:
    """86567656 -> '86.57 M'."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(count) >= size:
            return f"{count / size:,.2f} {unit}"
    return f"{count:.0f}"
