"""What `vitscope predict` says, as CSV and JSON: to standard output, or to a file that is refused beforehand."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitscope.cli.writing import refuse_place, writing
from vitscope.core.errors import UsageError, expected
from vitscope.core.files import write_atomically
from vitscope.core.strict_json import encode

if TYPE_CHECKING:
    from vitscope.infer.prediction import Prediction

PROG = "vitscope predict"
ENDINGS = (".csv", ".json", ".jsonl")


def file_to_write(out: str, *, overwrite: bool) -> Path:
    """Where --out leads, before a model is loaded for it."""
    path = Path(out).expanduser()
    if path.suffix.lower() not in ENDINGS:
        raise UsageError(
            expected("--out", f"a file that ends in {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}", repr(out)),
            where=PROG,
            fix=f"--out {path.with_suffix('.csv') if path.stem else 'answers.csv'}",
        )
    refuse_place(path)
    if path.exists() and not overwrite:
        raise UsageError(f"'{path}' is there already", where=PROG, fix="add --overwrite, or give another --out")
    return path


def write_predictions(path: Path, found: Sequence[Prediction], *, classes: int) -> None:
    """All at once: a file of this name is either the old one or the whole new one."""
    with writing(path):
        write_atomically(path, _content(path.suffix.lower(), found, classes))


def as_csv(found: Sequence[Prediction], *, classes: int) -> str:
    """A line for each picture, the first class under names of its own, then `classes` of them side by side."""
    several = any(told.agreement is not None for told in found)
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    named = [f"{word}_{place}" for place in range(1, classes + 1) for word in ("class", "probability")]
    rows.writerow(["path", "label", "index", "confidence", "error", *["agreement"] * several, *named])
    for told in found:
        guesses: list[Any] = [cell for guess in told.top_k for cell in (guess.label, _decimals(guess.probability))]
        agreed = [_decimals(told.agreement)] * several
        first = [told.path, told.label, told.index, _decimals(told.confidence), told.error, *agreed]
        rows.writerow([*first, *guesses, *[""] * (2 * classes - len(guesses))])
    return text.getvalue()


def _content(ending: str, found: Sequence[Prediction], classes: int) -> bytes:
    """UTF-8. A path that is none keeps its bytes in CSV, and is written with escapes in JSON."""
    if ending == ".csv":
        return as_csv(found, classes=classes).encode("utf-8", "surrogateescape")
    rows = encode([told.to_dict() for told in found])
    if ending == ".json":
        text = json.dumps(rows, indent=2, ensure_ascii=False) + "\n"
    else:
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    return text.encode("utf-8", "backslashreplace")


def _decimals(number: float | None) -> str:
    return "" if number is None else f"{number:.6f}"
