"""The gradient's length at every step, before clipping; steps that were skipped are marked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vitscope.train.show.plots.canvas import BLUE, RED, new_figure, nothing_to_draw, plain_axes, save
from vitscope.train.show.plots.columns import column, extremes, medians, step_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WINDOW, LEAST_WINDOW = 51, 5
"""Steps the median runs over, and of a short run at least; odd."""


def draw_grad_norms(rows: Sequence[Mapping[str, Any]], path: str | Path) -> Path:
    """On a log axis: lengths differ by powers of ten, and what matters is by which factor one stands out."""
    figure = new_figure(3.4)
    axes = figure.subplots()
    plain_axes(axes, x="step", y="before clipping", title="gradient norm")
    steps = [row for row in step_rows(rows, given_up=True) if "train/grad_norm" in row or "train/skipped" in row]
    steps.sort(key=lambda row: row["step"])
    # All of them: also those that training went back behind, where the trouble was.
    step, norm = column(steps, "step"), column(steps, "train/grad_norm")
    skipped = column(steps, "train/skipped") > 0  # NaN, where nothing is said, is not
    skipped |= ~np.isfinite(norm)
    good = ~skipped & (norm > 0)
    if good.any():
        _draw(axes, step[good], norm[good])
    elif not skipped.any():
        nothing_to_draw(axes, "no step was made")
        return save(figure, path)
    else:
        axes.set_yticks([])
    if skipped.any():
        # Along the lower edge, whatever the scale: these have no length to be drawn at.
        low = np.full(int(skipped.sum()), 0.03)
        label = f"skipped: {int(skipped.sum()):,} of {len(steps):,} steps"
        axes.plot(step[skipped], low, "x", color=RED, transform=axes.get_xaxis_transform(), label=label, markersize=6)
    axes.legend(frameon=False, fontsize=9, ncols=3, loc="lower right", bbox_to_anchor=(1.0, 0.98), markerscale=1.5)
    return save(figure, path)


def _draw(axes: Axes, step: np.ndarray, norm: np.ndarray) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axes.set_yscale("log")
    wide = norm.max() > 300 * norm.min()
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0,) if wide else (1.0, 2.0, 5.0)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))  # 0.5 rather than 5 x 10^-1
    x, y, width = extremes(step, norm)
    label = "each step" if width == 1 else f"extremes of {width} steps"
    axes.scatter(x, y, s=10.0 if len(x) < 500 else 5.0, color=BLUE, alpha=0.35, linewidths=0, label=label)
    if len(step) >= 5 * LEAST_WINDOW:
        x, y, window = medians(step, norm, min(WINDOW, max(LEAST_WINDOW, len(step) // 10 | 1)))
        axes.plot(x, y, color=BLUE, linewidth=1.6, label=f"median of {window} steps")
