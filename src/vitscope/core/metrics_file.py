"""metrics.jsonl: one JSON object a line, append-only, the truth about a run.

A row has `step`, `epoch`, `time` (unix seconds) and flat keys such as `train/loss`. A crash can at most leave
half a last line, which readers pass over and the next writer removes.
"""

from __future__ import annotations

import contextlib
import io
import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from vitscope.core import strict_json
from vitscope.core.errors import InputError, VitscopeError, expected
from vitscope.core.files import write_atomically


class MetricsFile:
    """Appends, reads and cuts rows. `bad_lines` counts what the last read had to pass over."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.bad_lines = 0
        self._ends_with_line = False

    def append(self, row: Mapping[str, Any] | None = None, /, **values: Any) -> None:
        """`append({"step": 7, "epoch": 1, "train/loss": 0.3})`; the time is added."""
        line = _encoded({**(row or {}), **values})
        try:
            if not self._ends_with_line:
                self._mend()
            self._ends_with_line = False  # until all of this line is known to be there
            with self.path.open("ab", buffering=0) as file:
                before = file.tell()
                complete = file.write(line) == len(line)
                if not complete:  # not even its end may be missing: whoever tries again would write it twice
                    file.truncate(before)
        except OSError as error:
            raise _cannot_write(self.path, str(error)) from error
        if not complete:
            raise _cannot_write(self.path, "only a part of the line was taken")
        self._ends_with_line = True

    def read(self) -> list[dict[str, Any]]:
        """All rows, "NaN" as a float again. Lines that are no rows are left out and counted."""
        lines = list(_lines(self._content()))
        rows = [row for _, row in lines if row is not None]
        self.bad_lines = sum(row is None and line.endswith(b"\n") for line, row in lines)
        return rows

    def column(self, key: str) -> tuple[list[int], list[float]]:
        """Steps and numbers of the rows that have a number under `key`."""
        found = [(row["step"], row[key]) for row in self.read() if isinstance(row.get(key), int | float)]
        return [step for step, _ in found], [float(value) for _, value in found]

    def cut_after(self, step: int) -> int:
        """Drop the rows past `step` (and half a last line) by an atomic rewrite; how many rows went."""
        return self.cut(lambda row: row["step"] > step)

    def cut(self, goes: Callable[[dict[str, Any]], bool]) -> int:
        """Drop the rows of which `goes` is true (and half a last line) by an atomic rewrite; how many went."""
        content = self._content()
        lines = [(line, row) for line, row in _lines(content) if row is not None or line.endswith(b"\n")]
        kept = [line for line, row in lines if row is None or not goes(row)]
        wanted = b"".join(line if line.endswith(b"\n") else line + b"\n" for line in kept)
        if wanted != content:
            write_atomically(self.path, wanted)
        return len(lines) - len(kept)

    def _content(self) -> bytes:
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return b""

    def _mend(self) -> None:
        """Make the file end with a line: remove half a line, end a whole one."""
        content = self._content()
        end = content.rfind(b"\n") + 1
        if end == len(content):
            return
        with self.path.open("r+b") as file:
            if _row(content[end:]) is None:
                file.truncate(end)
            else:
                file.seek(0, 2)
                file.write(b"\n")


def _lines(content: bytes) -> Iterator[tuple[bytes, dict[str, Any] | None]]:
    """Each line as it stands, with its row where it is one. Blank lines are nothing."""
    for line in io.BytesIO(content):
        if line.strip():
            yield line, _row(line)


def _row(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):  # not UTF-8 is a ValueError too
        return None
    if not isinstance(row, dict) or not isinstance(row.get("step"), int):
        return None
    return strict_json.decode(row)


def _encoded(values: Mapping[str, Any]) -> bytes:
    row = {key: _plain(key, value) for key, value in values.items()}
    step, epoch = row.pop("step", None), row.pop("epoch", None)
    if isinstance(step, bool) or not isinstance(step, int) or step < 0:
        raise InputError(expected("step of a metrics row", "an integer from 0", repr(step)))
    if isinstance(epoch, bool) or not isinstance(epoch, int | float):
        raise InputError(expected("epoch of a metrics row", "a number", repr(epoch)))
    row = {"step": step, "epoch": epoch, "time": time.time(), **row}
    return (json.dumps(strict_json.encode(row), allow_nan=False) + "\n").encode()


def _plain(key: str, value: Any) -> float | int | str | bool | None:
    """A number, text, bool or None; a tensor or array of one element gives its number."""
    plain = value
    if not isinstance(value, float | int | str | None) and hasattr(value, "item"):
        with contextlib.suppress(RuntimeError, ValueError):  # torch's and NumPy's "more than one element"
            plain = value.item()
    if not isinstance(plain, float | int | str | None):
        shape = getattr(value, "shape", None)
        received = type(value).__name__ + ("" if shape is None else f" of shape {tuple(shape)}")
        raise InputError(expected(f"metric '{key}'", "a number, text, True, False or None", received))
    return plain


def _cannot_write(path: Path, why: str) -> VitscopeError:
    return VitscopeError(f"cannot write metrics: {why}", where=str(path), fix="make room on the disk")
