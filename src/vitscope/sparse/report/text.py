"""The report for a terminal: tables no wider than it, then the verdicts."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from vitscope.sparse.report.seeds import is_masked
from vitscope.sparse.report.tables import Column, Table, seeds_in_words, tables_of
from vitscope.sparse.report.verdict import verdicts_of
from vitscope.sparse.report.words import MASKED_MEANS, NOTHING, short_name
from vitscope.sparse.rows import Row

WIDTH = 80
BETWEEN = "  "
FIXED_BLANK = "\u00a0"


def as_text(rows: Sequence[Row], *, width: int = WIDTH) -> str:
    """Tables, and a paragraph for each verdict."""
    parts = [_wrapped(seeds_in_words(rows), width)]
    for table in tables_of(rows):
        parts += ["\n".join(_lines(table, width))]
    parts.append("\n".join(["Verdicts", *(_wrapped(line, width, "- ") for line in verdict_lines(rows))]))
    return "\n\n".join(parts) + "\n"


def verdict_lines(rows: Sequence[Row]) -> list[str]:
    """A paragraph for each network the algorithm is held against, then the remarks."""
    return [*(it.in_words() for it in verdicts_of(rows)), *remarks(rows)]


def remarks(rows: Sequence[Row]) -> list[str]:
    """What is to be said of all rounds."""
    masked = dict.fromkeys(row.network for row in rows if is_masked(row) and not row.is_control)
    said = [f"{short_name(name)} is {MASKED_MEANS}. Zeros are multiplied like any other number." for name in masked]
    if not any(row.is_control for row in rows):
        said.append("No control was run: whether it matters what was removed is not known (--controls all).")
    return said


def _lines(table: Table, width: int) -> Iterator[str]:
    yield table.title
    for place, columns in enumerate(_split(table, width)):
        if place:
            yield ""
        yield from _grid(table.keys, columns)
    if table.note:
        yield _wrapped(table.note, width)


def _split(table: Table, width: int) -> list[tuple[Column, ...]]:
    """The columns in as few tables as fit, about as many in each: columns that belong together come in pairs, and
    halves keep those."""
    room = width - sum(_width(key) + len(BETWEEN) for key in table.keys)
    count = len(table.columns)
    for tables in range(1, count + 1):
        size = -(-count // tables)
        parts = [table.columns[start : start + size] for start in range(0, count, size)]
        if all(sum(map(_width, part)) + len(BETWEEN) * (len(part) - 1) <= room for part in parts):
            return parts
    return [(column,) for column in table.columns]


def _grid(keys: Sequence[Column], columns: Sequence[Column]) -> Iterator[str]:
    """Lines that say nothing in these columns are left out; names stand to the left, numbers to the right."""
    shown = [*keys, *columns]
    widths = [_width(column) for column in shown]
    for cells in zip(*((column.name, *column.cells) for column in shown), strict=True):
        if any(cell != NOTHING for cell in cells[len(keys) :]):
            aligned = (
                cell.ljust(width) if column.name == "network" else cell.rjust(width)
                for column, cell, width in zip(shown, cells, widths, strict=True)
            )
            yield BETWEEN.join(aligned).rstrip()


def _width(column: Column) -> int:
    return max(map(len, (column.name, *column.cells)))


def _wrapped(text: str, width: int, first: str = "") -> str:
    kept = text.replace(" %", f"{FIXED_BLANK}%")  # a number and its sign stay on one line
    lines = textwrap.fill(
        kept,
        width,
        initial_indent=first,
        subsequent_indent=" " * len(first),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return lines.replace(FIXED_BLANK, " ")
