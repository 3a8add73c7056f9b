"""A map of pictures: like ones lie together. Points in the colours of their classes, or the pictures themselves."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from vitscope.core.files import write_atomically
from vitscope.data.survey.contact_sheet import in_cell
from vitscope.infer.features.projection import Projection
from vitscope.train.show.plots.canvas import BLUE, GREY, lettering, new_figure, plain_axes, save, written

if TYPE_CHECKING:
    from PIL.Image import Image

PALETTE = (BLUE, "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#8B5A2B", "#6A3D9A", "#4D4D4D", "#B5A800")
MARKERS = "o^sDvP"
MOST_NAMED = len(PALETTE) * len(MARKERS)
"""Classes that can be told apart; of more, the largest are, and the others are grey."""
PER_COLUMN = 20
SIDE = 6.6
"""Inches of the map itself."""
LEAST_CELLS, MOST_CELLS = 10, 32
"""Thumbnails in a row, if none were missing."""
REACH = 3
"""Cells a thumbnail may be moved by where its own is taken; further, and the map would lie."""
CELL_PIXELS = 48
FRAME = 3
"""Pixels of the frame in the class's colour."""

Look = Callable[[int], "Image | None"]
"""From a picture's row to the picture; None where it cannot be had."""


class Named(NamedTuple):
    """A class in the legend."""

    name: str
    colour: str
    marker: str
    pictures: int


def draw_map(
    projection: Projection,
    path: str | Path,
    *,
    title: str = "",
    below: str = "",
    labels: Sequence[int] | None = None,
    classes: Sequence[str] = (),
    look: Look | None = None,
) -> Path:
    """Write a PNG. With `look`, pictures are drawn where they lie, one to a cell; otherwise points. `below` the title
    it says what is drawn."""
    colours, markers, named = _styles(labels, classes, len(projection.points))
    columns = -(-len(named) // PER_COLUMN)
    figure = new_figure(SIDE + 0.5, SIDE + 0.4 + 1.7 * columns)
    axes = figure.add_subplot()
    if look is None:
        _draw_points(axes, projection, colours, markers)
    else:
        shown = _draw_thumbnails(axes, projection.points, look, colours if named else None)
        below += f"; {shown:,} drawn" if shown < len(projection.points) else ""
    plain_axes(axes)
    figure.suptitle(lettering(title, 80), x=0.01, ha="left", **written(fontsize=12, fontweight="bold"))
    axes.set_title(lettering(below, 100), loc="left", **written(fontsize=9, color=GREY))
    axes.set_xlabel(projection.axes[0], **written(color=GREY))
    axes.set_ylabel(projection.axes[1], **written(color=GREY))
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[["left", "bottom"]].set_visible(look is None and projection.axes[0] != "")
    if named:
        _legend(figure, named, columns)
    written_to = save(figure, path)
    if look is None:
        _in_few_colours(written_to)
    return written_to


def _in_few_colours(path: Path) -> None:
    """Points have few: the file is a third as large, and looks the same."""
    from PIL import Image

    content = io.BytesIO()
    with Image.open(path) as drawn:
        drawn.convert("RGB").quantize(256).save(content, "PNG", optimize=True)
    write_atomically(path, content.getvalue())


def _styles(
    labels: Sequence[int] | None, classes: Sequence[str], count: int
) -> tuple[list[str], list[str], list[Named]]:
    """Of each picture its colour and marker; and the classes that are told apart."""
    if labels is None:
        return [BLUE] * count, ["o"] * count, []
    counts = np.bincount(np.asarray(labels, dtype=np.int64), minlength=len(classes))
    largest: list[int] = sorted(np.argsort(-counts, kind="stable")[:MOST_NAMED].tolist())
    style = {
        label: (PALETTE[place % len(PALETTE)], MARKERS[place // len(PALETTE)]) for place, label in enumerate(largest)
    }
    named = [Named(classes[label], *style[label], int(counts[label])) for label in largest if counts[label]]
    rest = count - sum(counts[label] for label in largest)
    if rest:
        named.append(Named(f"{int((counts > 0).sum()) - len(largest)} others", "0.75", ".", int(rest)))
    found = [style.get(int(label), ("0.75", ".")) for label in labels]
    return [colour for colour, _ in found], [marker for _, marker in found], named


def _draw_points(axes: Any, projection: Projection, colours: Sequence[str], markers: Sequence[str]) -> None:
    points = projection.points
    size = float(np.clip(16_000 / max(1, len(points)), 4, 40))
    # Drawn in a fixed shuffled order: no class lies on top of all others.
    order = np.random.default_rng(0).permutation(len(points))
    for marker in sorted(set(markers)):
        own = [place for place in order if markers[place] == marker]
        axes.scatter(
            points[own, 0],
            points[own, 1],
            s=size,
            c=[colours[place] for place in own],
            marker=marker,
            alpha=0.75 if len(points) < 5000 else 0.5,
            linewidths=0.3,
            edgecolors="white",
        )
    axes.margins(0.04)


def _draw_thumbnails(axes: Any, points: np.ndarray, look: Look, colours: Sequence[str] | None) -> int:
    """Each picture in its cell, or in the nearest that is free; how many were drawn."""
    from matplotlib.colors import to_rgb

    count = int(np.clip(2 * len(points) ** 0.5, LEAST_CELLS, MOST_CELLS))
    low, high = points.min(0), points.max(0)
    places = (points - low) / np.where(high > low, high - low, 1) * (count - 1e-6)
    distances = ((places - np.floor(places) - 0.5) ** 2).sum(1)
    sheet = np.full((count * CELL_PIXELS, count * CELL_PIXELS, 3), 255, np.uint8)
    taken: set[tuple[int, int]] = set()
    for row in map(int, np.argsort(distances, kind="stable")):
        cell = _free_cell(places[row], taken, count)
        picture = None if cell is None else look(row)
        if cell is None or picture is None:
            continue
        taken.add(cell)
        across, up = cell
        frame = FRAME if colours is not None else 1
        tile = np.full((CELL_PIXELS - 2, CELL_PIXELS - 2, 3), 255, np.uint8)
        if colours is not None:
            tile[:] = (np.array(to_rgb(colours[row])) * 255).astype(np.uint8)
        small = np.asarray(in_cell(picture, CELL_PIXELS - 2 - 2 * frame))
        down, left = ((CELL_PIXELS - 2 - side) // 2 for side in small.shape[:2])
        tile[down : down + small.shape[0], left : left + small.shape[1]] = small
        top, start = (count - 1 - up) * CELL_PIXELS + 1, across * CELL_PIXELS + 1
        sheet[top : top + len(tile), start : start + len(tile)] = tile
    axes.imshow(sheet, extent=(0, 1, 0, 1), interpolation="antialiased")
    return len(taken)


def _free_cell(place: np.ndarray, taken: set[tuple[int, int]], count: int) -> tuple[int, int] | None:
    """The free cell whose middle is nearest, within reach."""
    across, up = np.floor(place).astype(int).tolist()
    around = [
        (x, y)
        for x in range(max(0, across - REACH), min(count, across + REACH + 1))
        for y in range(max(0, up - REACH), min(count, up + REACH + 1))
        if (x, y) not in taken
    ]
    far = {cell: (cell[0] + 0.5 - place[0]) ** 2 + (cell[1] + 0.5 - place[1]) ** 2 for cell in around}
    nearest = min(far, key=lambda cell: (far[cell], cell), default=None)
    return nearest if nearest is not None and far[nearest] <= REACH**2 else None


def _legend(figure: Any, named: Sequence[Named], columns: int) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], linestyle="", marker=marker, color=colour, label=f"{lettering(name, 18)}  {count:,}")
        for name, colour, marker, count in named
    ]
    figure.legend(
        handles=handles,
        loc="outside right upper",
        ncols=columns,
        frameon=False,
        title="class, pictures",
        title_fontsize=9,
        alignment="left",
        handletextpad=0.2,
        prop={"family": written()["family"], "size": 9},
    )
