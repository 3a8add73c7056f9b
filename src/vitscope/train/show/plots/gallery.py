"""A grid of small pictures with a line or two below each."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from vitscope.train.show.plots.canvas import WIDTH, drawable, new_figure, save, written

COLUMNS = 8
MOST, MOST_LINES = 64, 3
TITLE, GAP, LINE = 0.36, 0.09, 0.135
"""Inches of the title, between two pictures, and of a line below one."""
LONGEST = 17
"""Letters of a line that fit below a picture where eight stand side by side."""


def draw_gallery(
    pictures: Sequence[np.ndarray], captions: Sequence[str], path: str | Path, *, title: str, columns: int = COLUMNS
) -> Path:
    """`pictures` are (H, W) or (H, W, 3), floats from 0 to 1 or uint8. At most 64 are shown."""
    pictures = pictures[:MOST]
    texts = [_fitted(caption, LONGEST * COLUMNS // columns) for caption in captions[:MOST]]
    lines = max((text.count("\n") + 1 for text in texts), default=1)
    rows = max(1, -(-len(pictures) // columns))
    cell = (WIDTH - GAP) / columns - GAP
    shape = max((picture.shape[0] / picture.shape[1] for picture in pictures), default=0.5)
    tall = cell * min(shape, 2.0)
    height = TITLE + rows * (tall + lines * LINE + 2 * GAP)
    figure = new_figure(height, arranged=False)
    title = title if pictures else f"{title}: none"
    figure.text(GAP / WIDTH, 1 - TITLE / 2 / height, title, fontsize=10, va="center", fontweight="bold")
    for number, (picture, text) in enumerate(zip(pictures, texts, strict=True)):
        down, across = divmod(number, columns)
        left = GAP + across * (cell + GAP)
        below = height - TITLE - down * (tall + lines * LINE + 2 * GAP) - tall
        axes = figure.add_axes((left / WIDTH, below / height, cell / WIDTH, tall / height))
        axes.set_axis_off()
        axes.imshow(picture, cmap="gray", vmin=0, vmax=255 if picture.dtype == np.uint8 else 1, interpolation="nearest")
        place = ((left + cell / 2) / WIDTH, (below - 0.04) / height)
        figure.text(*place, text, ha="center", va="top", **written(fontsize=7, linespacing=1.2))
    return save(figure, path)


def _fitted(caption: str, longest: int) -> str:
    """In lines of the picture's width, at most three."""
    wrapped = [part for line in caption.split("\n") for part in textwrap.wrap(line, longest) or [""]]
    return "\n".join(drawable(line) for line in wrapped[:MOST_LINES])
