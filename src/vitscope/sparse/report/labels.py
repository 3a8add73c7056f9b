"""Small labels beside dots, each where it covers neither a dot nor another label."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DIRECTIONS = ((0, 1), (0, -1), (2.4, 0.7), (-2.4, 0.7), (2.4, -0.7), (-2.4, -0.7), (3.2, 0), (-3.2, 0))
PLACES = tuple((away * x, away * y) for away in (10, 14, 19, 25, 32) for x, y in DIRECTIONS)
"""Points from the dot to the label's middle, the nearest first."""
ROOM = 1.5
"""Points kept free around a label."""
ON_A_LINE = 200
"""Places a line is looked at: so many that no label fits between two."""
Spot = tuple[float, float]


def place_labels(
    axes: Axes,
    spots: Sequence[tuple[float, float, str]],
    *,
    dots: Sequence[Spot],
    lines: Sequence[tuple[Spot, Spot]],
    **look: Any,
) -> None:
    """`spots` are (x, y, text); `dots` and `lines` stay visible. The figure must have its final places: call it when
    the limits are set and the layout is done. What fits nowhere is left out: no label beats two on one another."""
    points = axes.figure.dpi / 72
    taken = [_box(axes.transData.transform(dot), 3.5 * points, 3.5 * points) for dot in dots]
    for start, end in lines:
        ends = axes.transData.transform((start, end))
        taken += [_box(ends[0] + share * (ends[1] - ends[0]), points, points) for share in np.linspace(0, 1, ON_A_LINE)]
    frame = np.array(axes.get_window_extent().extents)
    for x, y, text in spots:
        middle = axes.transData.transform((x, y))
        label = axes.annotate(text, (x, y), xytext=(0, 0), textcoords="offset points", ha="center", va="center", **look)
        extent = label.get_window_extent()
        half = extent.width / 2 + ROOM * points, extent.height / 2 + ROOM * points
        boxes = ((place, _box(middle + points * np.array(place), *half)) for place in PLACES)
        inside = ((place, box) for place, box in boxes if _is_within(box, frame))
        free = next(((place, box) for place, box in inside if not any(_overlap(box, other) for other in taken)), None)
        if free is None:
            label.remove()
            continue
        label.set_position(free[0])
        taken.append(free[1])


def _box(middle: np.ndarray, half_width: float, half_height: float) -> np.ndarray:
    """(left, bottom, right, top) in pixels."""
    return np.array([middle[0] - half_width, middle[1] - half_height, middle[0] + half_width, middle[1] + half_height])


def _overlap(one: np.ndarray, other: np.ndarray) -> bool:
    return bool((one[:2] < other[2:]).all() and (other[:2] < one[2:]).all())


def _is_within(box: np.ndarray, frame: np.ndarray) -> bool:
    return bool((box[:2] >= frame[:2]).all() and (box[2:] <= frame[2:]).all())
