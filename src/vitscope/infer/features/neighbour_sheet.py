"""A picture and those most like it, side by side, with how like they are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vitscope.data.survey.contact_sheet import in_cell
from vitscope.train.show.plots.canvas import BLUE, GREY, lettering, new_figure, save, written

if TYPE_CHECKING:
    from PIL.Image import Image

PER_ROW = 5
CELL_PIXELS = 240
INCHES = 1.7
MOST_NARROW = 5.0
"""Inches of the sheet: the line below must fit."""
LONGEST = 22


def draw_neighbours(
    query: Image | None,
    neighbours: Sequence[tuple[Image | None, float, str, str]],
    path: str | Path,
    *,
    name: str = "",
    below: str = "",
) -> Path:
    """Write a PNG: the picture asked about, framed, then its neighbours (picture, similarity, name, class), five to a
    row. A picture that cannot be had is an empty place. `below` all it says what is compared."""
    rows = max(1, -(-len(neighbours) // PER_ROW))
    columns = min(PER_ROW, max(1, len(neighbours)))
    figure = new_figure(rows * (INCHES + 0.5) + 0.3, max(MOST_NARROW, (columns + 1) * (INCHES + 0.1)))
    figure.supxlabel(lettering(below, 100), x=0.01, ha="left", **written(fontsize=8, color=GREY))
    grid = figure.add_gridspec(rows, columns + 1)
    first = figure.add_subplot(grid[0, 0])
    _draw(first, query, "asked about", name)
    for side in first.spines.values():
        side.set(visible=True, color=BLUE, linewidth=3)
    for place, (picture, similarity, called, group) in enumerate(neighbours):
        axes = figure.add_subplot(grid[place // columns, 1 + place % columns])
        _draw(axes, picture, f"{similarity:.3f}", f"{group}: {called}" if group else called)
    return save(figure, path)


def _draw(axes: Any, picture: Image | None, above: str, below: str) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
    axes.set_title(above, **written(fontsize=10))
    axes.set_xlabel(lettering(below, LONGEST), **written(fontsize=8, color=GREY))
    if picture is None:
        axes.text(0.5, 0.5, "not to be had", transform=axes.transAxes, ha="center", va="center", color=GREY)
        axes.set_aspect("equal")
        return
    axes.imshow(np.asarray(in_cell(picture, CELL_PIXELS)), interpolation="antialiased")
