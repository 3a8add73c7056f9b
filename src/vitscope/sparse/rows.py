"""`rounds.csv`: a row for every network that was trained and measured. The report is made from it alone."""

from __future__ import annotations

import csv
import dataclasses
import io
import typing
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitscope.core.errors import DataError, expected
from vitscope.core.files import write_atomically
from vitscope.sparse.config import CONTROLS

DENSE = "dense"
"""The network before anything was removed: round 0."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One network. Shares are of the original network, from 0 to 1; what does not apply is None, and empty in the
    file. Accuracies are of the model as it was saved and loaded again."""

    seed: int
    round: int
    network: str
    """`dense` (round 0), the algorithm, or a control: `control:dense`, `:random`, `:reinit`, `:oneshot`."""
    heads_removed: float | None = None
    neurons_removed: float | None = None
    channels_removed: float | None = None
    weights_removed: float = 0.0
    """Of the prunable tensors' entries, by units or by masks."""
    params: int
    """Numbers the model has; what a mask holds at 0 counts, as it is still there."""
    macs: int
    """Multiply-adds of one picture; what a mask holds at 0 counts too."""
    latency_ms_batch1: float | None = None
    """Median, as `launch` says; taken in turns with the dense network."""
    latency_ms_batch256: float | None = None
    speedup_batch1: float | None = None
    """Dense network's time over this one's, median of rounds in turn. None for what is only masked; of
    2of4 it is the time on the sparse units of a GPU, None where there are none."""
    speedup_batch256: float | None = None
    dense_ms_batch1: float | None = None
    """The dense network's, in the same turns."""
    dense_ms_batch256: float | None = None
    eager_ms_batch1: float | None = None
    """The same launched kernel by kernel, where `launch` is another."""
    eager_ms_batch256: float | None = None
    eager_speedup_batch1: float | None = None
    eager_speedup_batch256: float | None = None
    launch: str | None = None
    """How both were timed: compiled_graph in bf16 on a GPU, eager in fp32 on a CPU."""
    before_cut_val_accuracy: float | None = None
    """With everything still there."""
    after_cut_val_accuracy: float | None = None
    """Right after the removal."""
    val_accuracy: float | None = None
    """At the end, of the best epoch by it."""
    test_accuracy: float | None = None
    """The same weights on the test pictures, which decided nothing."""
    test_count: int | None = None
    lambda_end: float | None = None
    """rsst: lambda at the cut."""
    doomed_share: float | None = None
    """rsst: max |D| / median |kept| at the cut."""
    cut_moved_logits: float | None = None
    """The largest change of a logit by the cut, over the largest logit."""
    epochs: int = 0
    """Trained since the dense network."""
    seconds: float = 0.0
    """By the clock, for this row: training, scoring, measuring."""
    heads_left: str | None = None
    """Of each block, with blanks between: 3 2 1."""
    neurons_left: str | None = None
    channels_left: str | None = None
    rewind_hash: str | None = None
    """sha256 of the weights this row was trained from, where it was rewound."""
    model: str = ""
    """The folder of the model, from where rounds.csv lies."""

    @property
    def is_control(self) -> bool:
        return self.network.startswith("control:")

    def left(self, kind: str) -> tuple[int, ...] | None:
        """Units left of each block."""
        text = getattr(self, f"{kind}_left")
        return None if text is None else tuple(int(number) for number in text.split())


COLUMNS = tuple(field.name for field in dataclasses.fields(Row))


def with_kept(rows: Iterable[Row], before: Iterable[Row]) -> list[Row]:
    """In the order of the table, with those of an earlier table that were not made again: what was once measured is not
    lost where fewer controls are asked for."""
    found = {(row.seed, row.round, row.network): row for row in before}
    found |= {(row.seed, row.round, row.network): row for row in rows}
    places = {f"control:{name}": place for place, name in enumerate(CONTROLS, start=1)}
    return sorted(found.values(), key=lambda row: (row.seed, row.round, places.get(row.network, 0)))


def write_rows(path: str | Path, rows: Iterable[Row]) -> None:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        writer.writerow(["" if value is None else value for value in (getattr(row, name) for name in COLUMNS)])
    write_atomically(Path(path), text.getvalue().encode())


def read_rows(path: str | Path) -> list[Row]:
    """What `write_rows` wrote; numbers come back to the last digit."""
    try:
        lines = list(csv.reader(Path(path).read_text(encoding="utf-8").splitlines()))
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"the rounds cannot be read: {error}", where=str(path)) from error
    if not lines or tuple(lines[0]) != COLUMNS:
        raise DataError(
            expected("columns", ", ".join(COLUMNS), ", ".join(lines[0]) if lines else "an empty file"), where=str(path)
        )
    return [_read(line, f"{path}, line {number}") for number, line in enumerate(lines[1:], start=2)]


def _read(line: list[str], where: str) -> Row:
    kinds = typing.get_type_hints(Row)
    if len(line) != len(COLUMNS):
        raise DataError(expected("a row", f"{len(COLUMNS)} values", len(line)), where=where)
    found: dict[str, Any] = {}
    for name, text in zip(COLUMNS, line, strict=True):
        options = typing.get_args(kinds[name]) or (kinds[name],)
        kind = next(option for option in options if option is not type(None))
        try:
            found[name] = None if text == "" and type(None) in options else kind(text)
        except ValueError as error:
            raise DataError(f"{name}: {error}", where=where) from error
    return Row(**found)
