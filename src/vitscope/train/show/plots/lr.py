"""The learning rate, step by step, as it was used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vitscope.train.show.plots.canvas import BLUE, new_figure, nothing_to_draw, plain_axes, save
from vitscope.train.show.plots.columns import column, known, step_rows


def draw_lr(rows: Sequence[Mapping[str, Any]], path: str | Path) -> Path:
    figure = new_figure(3.2)
    axes = figure.subplots()
    plain_axes(axes, x="step", title="learning rate")
    steps = step_rows(rows)
    x, y = known(column(steps, "step"), column(steps, "train/lr"))
    if not len(x):
        nothing_to_draw(axes, "no step was made")
        return save(figure, path)
    # Not thinned by means: a step down must stay a step.
    axes.plot(x, y, color=BLUE, linewidth=1.8, marker="o" if len(x) == 1 else "")
    axes.set_ylim(0, float(y.max()) * 1.08 or 1.0)
    axes.ticklabel_format(axis="y", style="sci", scilimits=(-2, 3))
    axes.text(
        0.99,
        1.02,
        f"first {y[0]:.3g}, largest {y.max():.3g}, last {y[-1]:.3g}",
        transform=axes.transAxes,
        ha="right",
        fontsize=9,
    )
    return save(figure, path)
