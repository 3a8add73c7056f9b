"""Filters and feature maps as one picture."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from vitscope.infer.explain.colours import coloured
from vitscope.infer.explain.feature_maps import FeatureMaps
from vitscope.infer.explain.layout import LINE, MARGIN, Sheet, sized
from vitscope.train.show.plots.canvas import GREY

COLUMNS = 12
CELL = 104
FILTER = 50
"""Pixels of a filter's longer side."""
GAP, TITLE = 6, 40
MAPS = "viridis"


def draw_feature_maps(found: FeatureMaps, path: str | Path) -> Path:
    """Write the PNG: the picture and the strongest filters beside it, then a line of maps for each stage."""
    small = sized(found.picture, CELL * 2 + GAP, CELL)
    frame = found.frame.scaled(_within(found.frame.size, CELL))
    filters = _filters(found)
    height, width = filters[0].shape[:2]
    inner = COLUMNS * (CELL + GAP)
    per_line = (inner - small.width - 2 * MARGIN) // (width + GAP)
    lines = min(max(1, (small.height + GAP) // (height + GAP)), -(-len(filters) // per_line))
    shown = filters[: lines * per_line]
    upper = max(small.height, lines * (height + GAP))
    step = frame.size[0] + GAP + LINE
    top = MARGIN + TITLE + LINE
    sheet = Sheet(2 * MARGIN + inner - GAP, top + upper + len(found.stages) * step + MARGIN)
    says = "" if found.prediction is None else f" · says {found.prediction.label} ({found.prediction.confidence:.1%})"
    name = f"{Path(found.name).name} · " if found.name else ""
    sheet.words(
        f"{name}filters and feature maps{says}", MARGIN, MARGIN + 12, fontsize=11, fontweight="bold", longest=80
    )
    left = MARGIN + small.width + 2 * MARGIN
    count, chans, p, q = found.filters.shape
    about = f"filters of {found.layer}: {len(shown)} of {count}, the strongest; {chans} x {p} x {q}, grey is 0"
    sheet.words("picture", MARGIN, top - LINE / 2)
    sheet.words(about, left, top - LINE / 2)
    sheet.picture(small, MARGIN, top)
    for place, pixels in enumerate(shown):
        sheet.picture(pixels, left + place % per_line * (width + GAP), top + place // per_line * (height + GAP))
    across = max(1, inner // (frame.size[1] + GAP))
    for row, stage in enumerate(found.stages):
        above = top + upper + GAP + row * step + LINE
        channels, h, w = stage.maps.shape
        chosen = stage.liveliest(across)
        text = f"{stage.name}: {channels} maps of {h} x {w}, the {len(chosen)} that vary most"
        sheet.words(text, MARGIN, above - LINE / 2, color=GREY, fontsize=8)
        for place, channel in enumerate(chosen):
            values = stage.maps[channel]
            low, high = float(values.min()), float(values.max())
            shares = frame.spread((values - low) / (high - low if high > low else 1.0), smooth=False)
            sheet.picture(coloured(shares, name=MAPS), MARGIN + place * (frame.size[1] + GAP), above)
    return sheet.save(path)


def _filters(found: FeatureMaps) -> list[np.ndarray]:
    """The strongest, each on its own scale with 0 in the middle; where there are not three channels, their mean."""
    pictures = []
    for number in found.strongest(400):
        weights = found.filters[number]
        weights = weights if len(weights) == 3 else np.repeat(weights.mean(axis=0, keepdims=True), 3, axis=0)
        most = float(np.abs(weights).max()) or 1.0
        pixels = ((weights / most + 1) / 2 * 255).round().astype(np.uint8).transpose(1, 2, 0)
        factor = max(1, FILTER // max(pixels.shape[:2]))
        size = (pixels.shape[1] * factor, pixels.shape[0] * factor)
        pictures.append(np.asarray(Image.fromarray(pixels).resize(size, Image.Resampling.NEAREST)))
    return pictures


def _within(size: tuple[int, int], longest: int) -> tuple[int, int]:
    scale = longest / max(size)
    return max(8, round(size[0] * scale)), max(8, round(size[1] * scale))
