"""What is made from the rows of an experiment: a text, two pictures, a page."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from vitscope.core import strict_json
from vitscope.core.files import write_atomically, write_json
from vitscope.sparse.report.left import draw_left, has_units
from vitscope.sparse.report.page import as_page
from vitscope.sparse.report.text import as_text
from vitscope.sparse.report.tradeoff import draw_tradeoff
from vitscope.sparse.report.verdict import verdicts_of
from vitscope.sparse.rows import Row

__all__ = ["as_text", "verdicts_of", "write_report"]

log = logging.getLogger("vitscope")


def write_report(folder: Path, rows: Sequence[Row], *, settings: Mapping[str, str], title: str) -> dict[str, Path]:
    """`report.html`, `verdicts.json` and `plots/*.png` in `folder`; what was written, by name. A picture that fails is
    named in the log and costs only itself; where single weights went there is no map of units, and none is drawn."""
    folder = Path(folder)
    plans: dict[str, Callable[[Path], Path]] = {"accuracy_and_speed": lambda path: draw_tradeoff(rows, path)}
    if has_units(rows):
        plans["what_is_left"] = lambda path: draw_left(rows, path)
    pictures: dict[str, Path] = {}
    for name, call in plans.items():
        try:
            pictures[name] = call(folder / "plots" / f"{name}.png")
        except Exception:  # a picture is never worth an experiment
            log.warning("plots/%s.png could not be drawn", name, exc_info=True)
    folder.mkdir(parents=True, exist_ok=True)
    page = folder / "report.html"
    write_atomically(page, as_page(rows, settings=settings, title=title, pictures=pictures).encode())
    verdicts = folder / "verdicts.json"
    write_json(verdicts, strict_json.encode([vars(one) for one in verdicts_of(rows)]))
    return {"report": page, "verdicts": verdicts, **pictures}
