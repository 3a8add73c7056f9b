"""Token x token: who looks at whom, a line for each token that looks, a column for each that is looked at."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vitscope.infer.explain.attention import chosen_head
from vitscope.infer.explain.colours import coloured
from vitscope.infer.explain.layout import LINE, MARGIN, Sheet
from vitscope.train.show.plots.canvas import GREY

if TYPE_CHECKING:
    from vitscope.infer.explain.attention import AttentionMaps

COLOURS = "viridis"
LOWEST = 0.1
"""Of an even look; what is below has the darkest colour."""
ONE, MANY = (640, 1400), (300, 480)
"""The least and most pixels of a map's side, alone and among others. Between them every token has one."""
GAP, TITLE, LEFT = 18, 40, 66
COLUMNS = (3, 4, 5)
"""The one that leaves the fewest places empty is taken."""


def draw_token_maps(found: AttentionMaps, path: str | Path, *, layer: int, head: int | None) -> Path:
    """Write the PNG. Weights are drawn as multiples of an even look (1 / tokens) on a logarithmic scale: the heads of a
    layer can differ a hundredfold."""
    weights = found.layers[layer].numpy()
    tokens = weights.shape[-1]
    if head is not None:
        head = chosen_head(head, len(weights))
        maps = [(f"head {head}", weights[head])]
    elif len(weights) == 1:
        maps = [("its one head", weights[0])]
    else:
        maps = [("mean", weights.mean(axis=0)), *((f"head {number}", one) for number, one in enumerate(weights))]
    least, most = ONE if len(maps) == 1 else MANY
    side = min(max(least, tokens), most)
    scale = (LOWEST, max(10.0, float(weights.max() * tokens)))
    columns = min(COLUMNS, key=lambda count: (-(-len(maps) // count) * count - len(maps), -count))
    columns = min(columns, len(maps))
    rows = -(-len(maps) // columns)
    across, down = side + GAP, side + LINE + 4
    top = MARGIN + TITLE + 26
    sheet = Sheet(LEFT + MARGIN + columns * across, top + rows * down + 62 + MARGIN // 2)
    sheet.words(f"who looks at whom in layer {layer}", MARGIN, MARGIN + 8, fontsize=11, fontweight="bold", longest=60)
    note = f"lines look at columns; {_order(found)}"
    sheet.words(note, MARGIN, MARGIN + 38, fontsize=8, color=GREY, longest=sheet.width // 9)
    for place, (title, values) in enumerate(maps):
        left, above = LEFT + place % columns * across, top + LINE + place // columns * down
        sheet.words(title, left, above - LINE / 2 + 2)
        sheet.picture(_pixels(values * tokens, scale, side), left, above)
        _mark_rows(sheet, found, left, above, side, first=place % columns == 0)
    bar = columns * across - GAP
    sheet.colour_bar(
        scale, LEFT, top + rows * down + 10, bar, label="times an even look (1 / tokens)", name=COLOURS, log=True
    )
    return sheet.save(path)


def _pixels(values: np.ndarray, scale: tuple[float, float], side: int) -> np.ndarray:
    """As many pixels as tokens or more; where there are fewer, each is the mean of those it stands for."""
    low, high = np.log(scale[0]), np.log(scale[1])
    if side < len(values):
        starts = np.arange(side) * len(values) // side
        counts = np.diff(starts, append=len(values))
        values = np.add.reduceat(np.add.reduceat(values, starts, axis=0), starts, axis=1) / np.outer(counts, counts)
    shares = np.clip((np.log(np.maximum(values, 1e-12)) - low) / (high - low), 0, 1)
    places = np.minimum(np.arange(side) * len(values) // side, len(values) - 1)
    return coloured(shares[np.ix_(places, places)], name=COLOURS)


def _order(found: AttentionMaps) -> str:
    patches = "patches in reading order"
    return f"first {', '.join(found.prefix)}, then {patches}" if found.prefix else patches


def _mark_rows(sheet: Sheet, found: AttentionMaps, left: float, top: float, side: int, *, first: bool) -> None:
    """Where a new row of patches begins, named on the left."""
    tokens = len(found.prefix) + found.grid[0] * found.grid[1]
    every = max(1, -(-found.grid[0] * 24 // side))
    for row in range(0, found.grid[0], every):
        place = (len(found.prefix) + row * found.grid[1]) / tokens * side
        sheet.frame((-6, place, 0, place), left, top, GREY)
        if first:
            sheet.words(f"row {row}", left - 10, top + place + 6, fontsize=7, color=GREY, ha="right")
