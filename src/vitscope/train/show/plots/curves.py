"""Learning curves: loss and accuracy, of training and validation, epoch by epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vitscope.train.config.metric import is_larger_better
from vitscope.train.show.plots.canvas import BLUE, GREY, ORANGE, new_figure, nothing_to_draw, plain_axes, save
from vitscope.train.show.plots.columns import column, epoch_rows, known, step_rows, thinned

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Rows = Sequence[Mapping[str, Any]]


def draw_curves(
    rows: Rows, path: str | Path, *, monitor: str = "val/accuracy", larger_is_better: bool | None = None
) -> Path:
    """Loss on the left, accuracy on the right; the epoch that is best by `monitor` is marked in both."""
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    figure = new_figure(3.6)
    loss, accuracy = figure.subplots(1, 2)
    plain_axes(loss, x="epoch", title="loss")
    plain_axes(accuracy, x="epoch", title="accuracy")
    accuracy.yaxis.set_major_formatter(PercentFormatter(1.0))
    best = _best(rows, monitor, larger_is_better)
    for axes, key in ((loss, "loss"), (accuracy, "accuracy")):
        if not _draw(axes, rows, key):
            nothing_to_draw(axes, "nothing finite was measured")
            continue
        if best is not None:
            _mark(axes, best, f"val/{key}", percent=key == "accuracy")
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1))
        axes.legend(frameon=False, fontsize=9)
    return save(figure, path)


def _draw(axes: Axes, rows: Rows, key: str) -> bool:
    """Whether there was anything to draw."""
    ends = epoch_rows(rows)
    marker = "o" if len(ends) <= 30 else ""
    x, y = _steps_in_epochs(rows, ends, f"train/{key}")
    drawn = len(x) > 0
    if drawn:
        axes.plot(x, y, color=BLUE, alpha=0.25, linewidth=0.8, label="train, each step")
    for part, colour in (("train", BLUE), ("val", ORANGE)):
        values = column(ends, f"{part}/epoch_{key}")
        x, y = known(column(ends, "epoch"), np.where(np.isnan(values), column(ends, f"{part}/{key}"), values))
        if len(x):
            drawn = True
            axes.plot(x, y, color=colour, linewidth=1.8, marker=marker, markersize=3.5, label=part)
    return drawn


def _steps_in_epochs(rows: Rows, ends: Rows, key: str) -> tuple[np.ndarray, np.ndarray]:
    """Single updates, placed between the ends of the epochs they belong to."""
    step, value = known(*(column(step_rows(rows), name) for name in ("step", key)))
    end, epoch = known(column(ends, "step"), column(ends, "epoch"))
    if not len(step) or not len(end):
        return np.empty(0), np.empty(0)
    per_epoch = end[0] / max(epoch[0], 1.0) if len(end) == 1 else (end[-1] - end[0]) / max(epoch[-1] - epoch[0], 1e-9)
    return thinned(epoch[0] + (step - end[0]) / max(per_epoch, 1e-9), value)


def _best(rows: Rows, monitor: str, larger_is_better: bool | None) -> Mapping[str, Any] | None:
    measured = [row for row in epoch_rows(rows) if np.isfinite(column([row], monitor)[0])]
    if larger_is_better is None:
        larger_is_better = is_larger_better(monitor, "auto")
    if not measured:
        return None
    return (max if larger_is_better else min)(measured, key=lambda row: row[monitor])  # the first of equals


def _mark(axes: Axes, best: Mapping[str, Any], key: str, *, percent: bool) -> None:
    x, y = column([best], "epoch")[0], column([best], key)[0]
    if not np.isfinite([x, y]).all():
        return
    figure = f"{y:.1%}".replace("%", " %") if percent else f"{y:.3g}"
    axes.axvline(x, color=GREY, linewidth=0.8, linestyle=":")
    label = f"best: {figure}, epoch {x:g}"
    axes.plot([x], [y], "o", color="none", markeredgecolor="black", markersize=8, label=label)
