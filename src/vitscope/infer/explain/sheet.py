"""Every head of every layer as a small map: which ones look at the same, which at nothing in particular."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from vitscope.infer.explain.colours import coloured, laid_over, levels
from vitscope.infer.explain.explanation import Explanation, in_means
from vitscope.infer.explain.layout import LINE, MARGIN, Sheet, sized
from vitscope.train.show.plots.canvas import GREY

MOST_WIDTH, LEAST_WIDTH = 1800, 560
LARGEST_CELL, SMALLEST_CELL = 150, 64
GAP, LABEL, TITLE = 5, 78, 84
EVEN = 3.0
"""Times the mean patch: the least a scale goes up to."""


def draw_sheet(found: Explanation, path: str | Path) -> Path:
    """Write the PNG: a row for each layer, and for an attention pool: the mean over the picture, then the heads."""
    rows = [(f"layer {number}", looks) for number, looks in enumerate(found.looks) if len(looks)]
    rows += [("pool", found.pool)] if found.pool is not None else []
    columns = 1 + max(len(looks) for _, looks in rows)
    room = (MOST_WIDTH - 2 * MARGIN - LABEL) // columns - GAP
    side = min(LARGEST_CELL, max(SMALLEST_CELL, room))
    small = sized(found.picture, side, side)
    frame = found.frame.scaled((small.height, small.width))
    width, height, left, top = small.width + GAP, small.height + GAP, MARGIN + LABEL, MARGIN + TITLE + LINE
    sheet = Sheet(max(left + columns * width + MARGIN, LEAST_WIDTH), top + len(rows) * height + MARGIN // 2)
    title = " · ".join([*([Path(found.name).name] if found.name else []), f"where {found.looker}"])
    sheet.words(title, MARGIN, MARGIN + 10, longest=sheet.width // 15, fontsize=11, fontweight="bold")
    note = f"from 0 to a map's highest patch, at least {EVEN:g} x its mean"
    sheet.words(note, MARGIN, MARGIN + 46, fontsize=8, color=GREY)
    for column, name in enumerate(["mean", *(f"head {head}" for head in range(columns - 1))]):
        name = name if small.width > 60 else name.removeprefix("head ")
        sheet.words(name, left + column * width + small.width / 2, top - LINE / 2, ha="center", fontsize=8)
    for row, (name, looks) in enumerate(rows):
        above = top + row * height
        sheet.words(name, MARGIN, above + small.height / 2, fontsize=8)
        mean = in_means(looks.mean(axis=0))
        sheet.picture(laid_over(small, frame, mean, _scale(mean)), left, above)
        for column, values in enumerate(map(in_means, looks), start=1):
            tiles = frame.spread(levels(values, _scale(values)), smooth=False)
            sheet.picture(coloured(tiles), left + column * width, above)
    return sheet.save(path)


def _scale(values: np.ndarray) -> tuple[float, float]:
    return 0.0, max(EVEN, float(values.max()))
