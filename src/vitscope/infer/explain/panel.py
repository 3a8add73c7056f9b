"""One map as a picture: what was looked at, the map, one over the other, and the curves that judge it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vitscope.infer.explain.colours import COLOURS, coloured, laid_over, levels, limits
from vitscope.infer.explain.explanation import Explanation, in_means
from vitscope.infer.explain.faithfulness import Faithfulness
from vitscope.infer.explain.layout import LINE, MARGIN, Sheet, sized
from vitscope.train.show.plots.canvas import BLUE, GREY, RED, plain_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LONGEST, LEAST = 480, 300
"""Pixels of a panel's longer side."""
GAP = 16
CURVES, SCALE = 440, 76
"""Width of the curves, and of the numbers on their left."""
TITLE, BELOW = 44, 62
LOOKER = "#00E5FF"


def draw_panel(found: Explanation, path: str | Path) -> Path:
    """Write the PNG."""
    shown = sized(found.picture, LONGEST, LEAST)
    width, height = shown.size
    judged = found.faithfulness
    step, top = width + GAP, MARGIN + TITLE + LINE
    across = 3 * step - GAP
    curves = MARGIN + across + SCALE
    sheet_width = 2 * MARGIN + across if judged is None else curves + CURVES + MARGIN
    sheet = Sheet(sheet_width, top + max(height, 220) + BELOW + MARGIN // 2)
    title = " · ".join([*([Path(found.name).name] if found.name else []), *_about(found)])
    look: dict[str, Any] = {"fontsize": 11, "fontweight": "bold"}
    sheet.words(title, MARGIN, MARGIN + 14, longest=across // 15, **look)

    values = in_means(found.map)
    frame = found.frame.scaled((height, width))
    tiles = coloured(frame.spread(levels(values), smooth=False))
    panels = (
        ("picture", shown),
        (found.shows, tiles),
        ("map over picture", laid_over(shown, frame, values)),
    )
    for place, (name, pixels) in enumerate(panels):
        left = MARGIN + place * step
        sheet.words(name, left, top - LINE / 2, longest=width // 11)
        sheet.picture(pixels, left, top)
        if found.patch is not None:
            sheet.frame(frame.patch_box(found.patch, found.grid), left, top, LOOKER)
    notes = []
    if not found.frame.sees_all:
        sheet.frame(frame.box, MARGIN, top, "white")
        notes.append("white frame: what the model sees")
    if found.prediction is not None:
        likely = [one for one in found.prediction.top_k[:3] if one.probability >= 0.005]
        notes.append("says: " + ", ".join(f"{one.label} {one.probability:.0%}" for one in likely))
    for line, note in enumerate(notes):
        below = top + height + 16 + 22 * line
        sheet.words(note, MARGIN, below, longest=int(width / 9.5), fontsize=8, color=GREY)
    bar = {"label": "1 = the mean patch", "name": COLOURS}
    sheet.colour_bar(limits(values), MARGIN + step, top + height + 8, 2 * width + GAP, log=False, **bar)
    if judged is not None:
        sheet.words(f"the map: {judged.verdict}", curves, MARGIN + 14, **look)
        sheet.words(_judgement(judged), curves, top - LINE / 2)
        _draw_curves(sheet.axes(curves, top, CURVES, max(height, 220)), judged)
    return sheet.save(path)


def _about(found: Explanation) -> list[str]:
    target = found.target
    return [found.title, *([] if target is None else [f"for '{target.label}' ({target.probability:.1%})"])]


def _judgement(judged: Faithfulness) -> str:
    return f"faithfulness {judged.score:+.2f}, chance {judged.chance.mean():+.2f} ± {judged.chance.std(ddof=1):.2f}"


def _draw_curves(axes: Axes, judged: Faithfulness) -> None:
    """Chance as a band from its lowest to its highest draw, its mean dashed."""
    shares = judged.shares * 100
    for curve, chance, colour, what in (
        (judged.insertion, judged.chance_insertion, BLUE, "put back, highest first"),
        (judged.deletion, judged.chance_deletion, RED, "taken away, highest first"),
    ):
        axes.fill_between(shares, chance.min(axis=0), chance.max(axis=0), color=colour, alpha=0.13, linewidth=0)
        axes.plot(shares, chance.mean(axis=0), color=colour, linewidth=1, linestyle="--", alpha=0.7)
        axes.plot(shares, curve, color=colour, linewidth=2, label=what)
    plain_axes(axes)
    axes.tick_params(labelsize=8)
    axes.set_xlim(0, 100)
    low = min(0.0, float(np.min([judged.deletion.min(), judged.insertion.min()])))
    axes.set_ylim(low, max(1.0, float(judged.insertion.max())) * 1.02)
    axes.set_xlabel("% of the patches; bands: the map moved elsewhere", fontsize=8)
    axes.set_ylabel(judged.measure, fontsize=8, parse_math=False)
    axes.legend(fontsize=8, framealpha=0.8, edgecolor="none", loc="best")
