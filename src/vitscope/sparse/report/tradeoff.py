"""The picture of what sparsity costs and gives: accuracy against measured speed-up, and both over the share removed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vitscope.core.errors import DataError, expected
from vitscope.sparse.report.labels import place_labels
from vitscope.sparse.report.seeds import is_known, networks_of
from vitscope.sparse.report.series import (
    SHARE,
    SPEED,
    Series,
    dots_of,
    lines_of,
    middle_of,
    middles_of,
    series_of,
    start_of,
)
from vitscope.sparse.report.words import short_name
from vitscope.sparse.rows import DENSE, Row
from vitscope.train.show.plots.canvas import GREY, lettering, new_figure, plain_axes, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAMES = {
    "test_accuracy": "test accuracy",
    "val_accuracy": "validation accuracy",
    SHARE: "share of prunable weights removed",
    SPEED: "speed-up at batch 256",
}
LEAST_RANGE = {SHARE: 0.1, SPEED: 0.2}
LEAST_RANGE_OF_ACCURACY = 0.02
FAR = 4
"""A control that is further below than so many times the range of all others is named and not shown."""
TITLES = {
    SPEED: "Accuracy against measured speed-up, labelled with the share removed",
    SHARE: "Accuracy over share removed",
    "speed": "Speed-up over share removed",
}


def draw_tradeoff(rows: Sequence[Row], path: str | Path) -> Path:
    """Means joined by lines, every seed a pale dot. Without measured speed-ups (masks have none) there is one panel."""
    accuracy = "test_accuracy" if any(is_known(row.test_accuracy) for row in rows) else "val_accuracy"
    if not any(is_known(getattr(row, accuracy)) for row in rows):
        raise DataError(expected("a picture of accuracy", "rows that have one", "none"))
    series = series_of(networks_of(rows))
    is_timed = any(is_known(row.speedup_batch256) for row in rows if row.weights_removed > 0)
    figure = new_figure(8.0 if is_timed else 4.6)
    panels: dict[str, Axes] = {}
    if is_timed:
        figure.set_layout_engine("constrained", wspace=0.06, hspace=0.05)
        panels = figure.subplot_mosaic([["trade", "trade"], ["accuracy", "speed"]], height_ratios=[1.3, 1])
        plan = [
            (panels["trade"], SPEED, accuracy),
            (panels["accuracy"], SHARE, accuracy),
            (panels["speed"], SHARE, SPEED),
        ]
    else:
        plan = [(figure.subplots(), SHARE, accuracy)]
    launches = ", ".join(dict.fromkeys(row.launch for row in rows if row.launch is not None))
    for axes, x, y in plan:
        _panel(axes, series, x, y, launches)
    shown = next(axes for axes, x, _ in plan if x == SHARE)  # has every network, the masked ones too
    handles, names = shown.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=3, frameon=False, fontsize=9)
    figure.draw_without_rendering()  # labels are placed in pixels, and only now it is known where those are
    figure.set_layout_engine("none")
    if is_timed:
        _label_shares(panels["trade"], series, x=SPEED, y=accuracy)
    return save(figure, path)


def _panel(axes: Axes, series: Sequence[Series], x: str, y: str, launches: str) -> None:
    across = f"{NAMES[x]} ({launches})" if x == SPEED and launches else NAMES[x]
    plain_axes(axes, x=across, y=NAMES[y], title=TITLES["speed" if y == SPEED else x])
    start = start_of(series, x, y)
    if start is not None and y != SPEED:
        axes.axhline(start[1], color=GREY, linewidth=0.9, linestyle=(0, (4, 3)), zorder=1)
    for one in series:
        above = 1 if one.name.startswith("control:") else 5  # where they meet, the algorithm is seen
        for spot in dots_of(one, x, y):
            axes.plot(*spot, one.marker, color=one.colour, markersize=4.5, alpha=0.4, markeredgewidth=0, zorder=above)
        for piece in lines_of(one, start, x, y):
            axes.plot(*zip(*piece, strict=True), "-", color=one.colour, linewidth=1.6, zorder=above + 1)
        columns = tuple(zip(*middles_of(one, x, y), strict=True)) or ((), ())
        axes.plot(
            *columns,
            one.marker,
            color=one.colour,
            markersize=6.5,
            markeredgecolor="white",
            markeredgewidth=0.8,
            zorder=above + 2,
            label=lettering(short_name(one.name), 30),
        )
    _scale(axes, x, y)
    if y != SPEED:
        _leave_out_far_below(axes, series, x, y)


def _leave_out_far_below(axes: Axes, series: Sequence[Series], x: str, y: str) -> None:
    """New weights that have not learnt yet would press everything else into a line."""
    heights = {one.name: [up for _, up in (*middles_of(one, x, y), *dots_of(one, x, y))] for one in series}
    controls = sorted(
        (name for name in heights if name.startswith("control:")), key=lambda name: min(heights[name] or [1])
    )
    shown = {name: values for name, values in heights.items() if values}
    far: list[str] = []
    for name in controls:
        others = [up for other, values in shown.items() if other != name for up in values]
        if name not in shown or not others:
            continue
        room = max(LEAST_RANGE_OF_ACCURACY, max(others) - min(others))
        if max(shown[name]) < min(others) - FAR * room:
            far.append(name)
            del shown[name]
    if not far:
        return
    values = [up for up_here in shown.values() for up in up_here]
    room = max(LEAST_RANGE_OF_ACCURACY, max(values) - min(values))
    axes.set_ylim(min(values) - 0.35 * room, max(values) + 0.15 * room)
    told = ", ".join(f"{short_name(name)} {100 * min(heights[name]):.0f} %" for name in far)
    axes.text(0.02, 0.03, f"below the picture: {told}", transform=axes.transAxes, color=GREY, fontsize=8.5)


def _scale(axes: Axes, x: str, y: str) -> None:
    """Round numbers, and never so close that a tenth of a point looks like a fall."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.margins(x=0.07, y=0.12)
    for axis, field, limits, change in (
        (axes.xaxis, x, axes.get_xlim(), axes.set_xlim),
        (axes.yaxis, y, axes.get_ylim(), axes.set_ylim),
    ):
        lacking = max(0.0, LEAST_RANGE.get(field, LEAST_RANGE_OF_ACCURACY) - (limits[1] - limits[0]))
        change(limits[0] - lacking / 2, limits[1] + lacking / 2)
        axis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
        write = "{:.3g}x".format if field == SPEED else (lambda value: f"{round(100 * value, 6) + 0.0:.4g} %")
        axis.set_major_formatter(FuncFormatter(lambda value, _, write=write: write(value)))


def _label_shares(axes: Axes, series: Sequence[Series], *, x: str, y: str) -> None:
    """The share removed, beside the algorithm's means; controls lose as much in the same round."""
    start = start_of(series, x, y)
    dots = [spot for one in series for spot in (*dots_of(one, x, y), *middles_of(one, x, y))]
    lines = [piece for one in series for piece in lines_of(one, start, x, y)]
    if start is not None:
        low, high = axes.get_xlim()
        lines.append(((low, start[1]), (high, start[1])))
    spots = [
        (*middle, f"{100 * share.mean:.0f} %")
        for one in series
        for network in one.networks
        if one.name != DENSE and not network.is_control
        if (middle := middle_of(network, x, y)) is not None and (share := network.over_seeds(SHARE)) is not None
    ]
    place_labels(axes, spots, dots=dots, lines=lines, fontsize=8.5, color="0.15")
