"""A sheet of pictures, one row per class, to look at before training."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vitscope.core.seed import derive_seed

if TYPE_CHECKING:
    from PIL.Image import Image

MOST_ROWS, PER_ROW = 20, 10
CELL, SMALL_CELL, GAP = 96, 64, 6
"""Pixels of a picture's place, with more than ten rows, and between two."""
MOST_BYTES = 2_000_000
"""A larger file is drawn in 256 colours."""
LABEL, TITLE, MARGIN = 190, 46, 14
LONGEST_NAME = 24
FONT = "DejaVu Sans"
"""Comes with matplotlib, whatever else is installed."""
_DPI = 100
"""Sizes above are pixels; matplotlib wants inches."""


def choose(numbers: Sequence[int] | np.ndarray, count: int = PER_ROW) -> list[int]:
    """Up to `count` of the pictures, drawn by a hash of their numbers: always the same ones, and not just the first."""
    drawn = sorted(map(int, numbers), key=lambda number: derive_seed("contact sheet", number))
    return sorted(drawn[:count])


def draw_contact_sheet(
    rows: Sequence[tuple[str, Sequence[Image]]],
    path: str | Path,
    *,
    title: str = "",
    counts: Sequence[int] | None = None,
    classes: int | None = None,
) -> Path:
    """Write a PNG with up to 20 rows (class name, pictures), 10 pictures each.

    `counts` are the pictures each class has, written below its name. `classes` is how many classes there are, where
    `rows` holds only some; a sheet that does not show all says so.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from PIL.Image import fromarray

    classes = max(len(rows), classes or 0)
    rows = rows[:MOST_ROWS]
    cell = CELL if len(rows) <= 10 else SMALL_CELL
    width = MARGIN * 2 + LABEL + PER_ROW * (cell + GAP)
    height = TITLE + MARGIN + max(1, len(rows)) * (cell + GAP)
    figure = Figure(figsize=(width / _DPI, height / _DPI), dpi=_DPI, facecolor="white")
    canvas = FigureCanvasAgg(figure)
    if len(rows) < classes:
        title = f"{title}   first {len(rows)} of {classes:,} classes".strip()

    def write(x: float, y: float, text: str, **look: Any) -> None:
        shown = drawable(text)
        figure.text(
            x / width, 1 - y / height, shown, va="center", family=FONT, parse_math=False, **look
        )  # '$' is no formula here

    write(MARGIN, TITLE / 2, shortened_name(title, 110), fontsize=12, fontweight="bold")
    for number, (name, pictures) in enumerate(rows):
        top = TITLE + number * (cell + GAP)
        middle = top + cell / 2
        count = f"{counts[number]:,}" if counts is not None else ""
        write(MARGIN, middle - (9 if count else 0), shortened_name(name, LONGEST_NAME), fontsize=11)
        if count:
            write(MARGIN, middle + 11, count, fontsize=9, color="0.4")
        for place, picture in enumerate(pictures[:PER_ROW]):
            shown = in_cell(picture, cell)
            left = MARGIN + LABEL + place * (cell + GAP) + (cell - shown.width) // 2
            above = top + (cell - shown.height) // 2
            figure.figimage(np.asarray(shown), left, height - above - shown.height, origin="upper", zorder=1)
    path = Path(path)
    canvas.draw()
    sheet = fromarray(np.asarray(canvas.buffer_rgba())[:, :, :3].copy())
    sheet.save(path, format="PNG", optimize=True)
    if path.stat().st_size > MOST_BYTES:
        sheet.quantize(256).save(path, format="PNG", optimize=True)
    return path


def in_cell(picture: Image, cell: int = CELL) -> Image:
    """As large as its place allows, shape kept. Small pictures are enlarged pixel by pixel, by a whole factor."""
    from PIL.Image import Resampling

    picture = picture.convert("RGB")
    longest = max(picture.size)
    if longest <= cell // 2:
        factor = cell // longest
        return picture.resize((picture.width * factor, picture.height * factor), Resampling.NEAREST)
    scale = cell / longest
    size = (max(1, round(picture.width * scale)), max(1, round(picture.height * scale)))
    return picture.resize(size, Resampling.LANCZOS if scale < 1 else Resampling.NEAREST)


def drawable(text: str) -> str:
    """The text with what matplotlib's font lacks (Chinese, emoji, control characters) replaced by '?'."""
    from matplotlib import font_manager, get_data_path
    from matplotlib.ft2font import FT2Font

    font = Path(font_manager.findfont(FONT))
    if not font.is_file():
        font = Path(get_data_path(), "fonts", "ttf", "DejaVuSans.ttf")
    known = FT2Font(str(font)).get_charmap()

    def shown(character: str) -> str:
        if unicodedata.category(character)[0] == "C":  # control, surrogate, private, unassigned
            return "?"
        return character if ord(character) in known else "?"

    return "".join(map(shown, text))


def shortened_name(name: str, longest: int) -> str:
    return name if len(name) <= longest else name[: longest - 1] + "…"
