"""What is taken for what: shares of each true class, and the pairs most often confused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vitscope.train.show.plots.canvas import BLUE, lettering, new_figure, nothing_to_draw, plain_axes, save, written

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from torch import Tensor

MOST_WITH_COUNTS = 12
MOST_WITH_NAMES = 40
MOST_AS_MATRIX = 100
PAIRS = 15


def draw_confusion(matrix: Tensor | np.ndarray, names: Sequence[str], path: str | Path) -> Path:
    """`matrix` (K, K) holds counts, rows are the true classes. Up to 12 classes every count is written; with more, the
    most confused pairs stand below; with more than 100 the matrix gives way to the accuracy of every class."""
    counts = np.asarray(matrix, dtype=np.int64)
    few, many = len(counts) <= MOST_WITH_COUNTS, len(counts) > MOST_AS_MATRIX
    total, right = int(counts.sum()), int(np.trace(counts))
    accuracy = f"accuracy {100 * right / total:.1f} %, {right:,} of {total:,} right" if total else "no pictures"
    if few:
        figure = new_figure(6.4, width=7.2)
        axes = figure.subplots()
    else:
        above = 3.0 if many else 6.6
        figure = new_figure(above + 3.6)
        axes, below = figure.subplots(2, 1, height_ratios=(above, 3.6))
        _draw_pairs(below, counts, names)
    (_draw_accuracies if many else _draw_shares)(axes, counts, names)
    axes.set_title(accuracy, fontsize=11, loc="left", fontweight="bold")
    return save(figure, path)


def most_confused(counts: np.ndarray, limit: int = PAIRS) -> list[tuple[int, int, int]]:
    """(true, predicted, count), the most frequent first; equal ones in the order of the classes."""
    wrong = counts.copy()
    np.fill_diagonal(wrong, 0)
    order = np.argsort(-wrong, axis=None, kind="stable")[:limit]
    pairs = (divmod(int(place), len(counts)) for place in order)
    return [(true, predicted, int(wrong[true, predicted])) for true, predicted in pairs if wrong[true, predicted]]


def _draw_shares(axes: Axes, counts: np.ndarray, names: Sequence[str]) -> None:
    from matplotlib.colors import PowerNorm

    shares, few = _shares(counts), len(counts) <= MOST_WITH_COUNTS
    # The root lets a few per cent of errors be seen beside a diagonal near 1.
    drawn = axes.imshow(shares, cmap="Blues", norm=PowerNorm(0.5, vmin=0.0, vmax=1.0), interpolation="nearest")
    axes.set_xlabel("predicted")
    axes.set_ylabel("true")
    bar = axes.figure.colorbar(drawn, ax=axes, shrink=0.75, ticks=[0, 0.01, 0.1, 0.25, 0.5, 1.0])
    bar.ax.set_yticklabels(["0", "1 %", "10 %", "25 %", "50 %", "100 %"], fontsize=8)
    bar.set_label("share of the true class", fontsize=9)
    if len(counts) > MOST_WITH_NAMES:
        return
    shown = [lettering(name, 16) for name in names]
    size = 9 if few else 7
    long = max(map(len, shown)) > 2
    axes.set_xticks(range(len(shown)), shown, **_ticks(size, rotation=90 if long else 0))
    axes.set_yticks(range(len(shown)), shown, **_ticks(size))
    if few:
        for (row, place), count in np.ndenumerate(counts):
            colour = "white" if shares[row, place] > 0.3 else "black" if count else "0.75"
            axes.text(place, row, f"{count:,}", ha="center", va="center", fontsize=8, color=colour)


def _shares(counts: np.ndarray) -> np.ndarray:
    """Rows that add up to 1, or hold nothing where a class has no pictures."""
    of_class = counts.sum(axis=1, keepdims=True)
    return np.divide(counts, of_class, out=np.zeros(counts.shape), where=of_class > 0)


def _draw_accuracies(axes: Axes, counts: np.ndarray, names: Sequence[str]) -> None:
    from matplotlib.ticker import PercentFormatter

    there = counts.sum(axis=1) > 0
    accuracies = np.sort(np.diag(_shares(counts))[there])[::-1]
    plain_axes(axes, x=f"{len(accuracies):,} of {len(names):,} classes, from the best to the worst", y="accuracy")
    axes.fill_between(np.arange(len(accuracies)), accuracies, color=BLUE, alpha=0.35, step="mid")
    axes.set_ylim(0, 1)
    axes.margins(x=0)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))


def _ticks(size: int, **look: Any) -> dict[str, Any]:
    return written(fontsize=size, **look)


def _draw_pairs(axes: Axes, counts: np.ndarray, names: Sequence[str]) -> None:
    pairs = most_confused(counts)
    plain_axes(axes, title="most often confused: true → predicted")
    if not pairs:
        nothing_to_draw(axes, "nothing is confused")
        return
    places = range(len(pairs))
    axes.barh(places, [count for _, _, count in pairs], color=BLUE, height=0.7)
    texts = [f"{lettering(names[true], 24)} → {lettering(names[other], 24)}" for true, other, _ in pairs]
    axes.set_yticks(places, texts, **_ticks(8))
    axes.invert_yaxis()
    axes.spines[["bottom"]].set_visible(False)
    axes.set_xticks([])
    axes.grid(False)
    of_class = counts.sum(axis=1)
    for place, (true, _, count) in enumerate(pairs):
        axes.text(count, place, f" {count:,} of {of_class[true]:,}", va="center", fontsize=8)
    axes.set_xlim(0, 1.25 * pairs[0][2])
