"""Results go to standard output: as tables for people, as JSON for programs. What is said meanwhile does not."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

WIDTH_OF_A_FILE = 160
BETWEEN_COLUMNS = 2


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leave it to `main`: a reader that has seen enough is no failure."""
        raise BrokenPipeError


def console() -> Console:
    """A terminal's own width; a fixed one in a pipe or file, so that nothing is cut at 80."""
    if sys.stdout.isatty():
        return _Console(highlight=False)
    return _Console(highlight=False, width=WIDTH_OF_A_FILE, color_system=None)


def plain_table(*columns: str) -> Table:
    """A table of texts without a box; all but the first column wrap."""
    table = _no_box()
    for place, column in enumerate(columns):
        table.add_column(column, no_wrap=place == 0, overflow="fold")
    return table


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    numbers: Sequence[str] = (),
    wraps: dict[str, int] | None = None,
    drop: Sequence[str] = (),
) -> None:
    """A table whose cells are never cut. Columns in `numbers` stand to the right; those in `wraps` may be as narrow as
    the width given there, breaking between words. Where the terminal is too narrow the columns in `drop` are left out,
    in this order; if that does not suffice, lines are longer than the terminal."""
    out = console()
    wraps = wraps or {}
    longest = {column: max(map(_width, cells)) for column, *cells in zip(columns, columns, *rows, strict=True)}
    least = {column: min(longest[column], wraps.get(column, longest[column])) for column in columns}
    kept = list(columns)
    for column in drop:
        if _line(kept, least) > out.width:
            kept.remove(column)
    out.width = max(out.width, _line(kept, least))
    table = _no_box()
    for column in kept:
        wrap = column in wraps
        side = "right" if column in numbers else "left"
        table.add_column(column, justify=side, no_wrap=not wrap, overflow="fold", min_width=least[column])
    for row in rows:
        table.add_row(*(cell for column, cell in zip(columns, row, strict=True) if column in kept))
    out.print(table)


def _no_box() -> Table:
    return Table(box=None, pad_edge=False, padding=(0, BETWEEN_COLUMNS, 0, 0), header_style="bold")


def _width(cell: str) -> int:
    """Of the longest line as it is shown, without its markup."""
    return max((Text(line).cell_len for line in Text.from_markup(cell).plain.splitlines()), default=0)


def _line(columns: Sequence[str], widths: dict[str, int]) -> int:
    return sum(widths[column] for column in columns) + BETWEEN_COLUMNS * (len(columns) - 1)


def print_json(data: Any) -> None:
    sys.stdout.write(json.dumps(data, indent=2, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def say(text: str) -> None:
    """A line on standard error, at once: how far the work is, or what a person should know of it."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


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
