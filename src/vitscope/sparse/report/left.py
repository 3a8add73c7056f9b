"""The map of what is left: in every block its heads as dots and its neurons (channels) as a bar, round after round."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitscope.core.errors import DataError, expected
from vitscope.sparse.report.seeds import algorithms_of, networks_of
from vitscope.sparse.report.words import short_name
from vitscope.sparse.rows import DENSE, Row
from vitscope.train.show.plots.canvas import BLUE, GREY, ORANGE, lettering, new_figure, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

KINDS = ("heads", "neurons", "channels")
MOST_IN_A_LINE = 3
"""Panels beside one another."""
LEAST_HEIGHT, OF_A_BLOCK, AROUND = 0.4, 0.17, 0.95
"""Inches: of a panel at least, of one block, and of title and margins."""
PALE = "#E4E4E4"


def has_units(rows: Sequence[Row]) -> bool:
    """Whether whole units were counted: single weights leave every unit in place, and there is no map to draw."""
    return any(_kinds(row) for row in _shown(rows) if row.network != DENSE)


def draw_left(rows: Sequence[Row], path: str | Path) -> Path:
    """One panel a round, of the first seed; the dense network is what the others are measured by."""
    shown = _shown(rows)
    dense = next((row for row in shown if row.network == DENSE), None)
    if dense is None or not _kinds(dense):
        received = "none" if dense is None else "one that does not say"
        raise DataError(expected("a map of what is left", "a dense row with its units of every block", received))
    shown = [row for row in shown if _kinds(row)]
    kinds, blocks = _kinds(dense), max(len(dense.left(kind) or ()) for kind in _kinds(dense))
    in_a_line = 2 if len(shown) in (2, 4) else MOST_IN_A_LINE
    lines = -(-len(shown) // in_a_line)
    figure = new_figure(lines * (max(LEAST_HEIGHT, OF_A_BLOCK * blocks) + AROUND) + 0.5)
    figure.suptitle(_caption(kinds, dense.seed), fontsize=9, color="0.25")
    panels = figure.subfigures(lines, in_a_line, squeeze=False)
    for row, panel in zip(shown, panels.flat, strict=False):
        panel.suptitle(_title(row), fontsize=10, fontweight="bold")
        widths = [_width(kind, dense.left(kind) or ()) for kind in kinds]
        parts = panel.subplots(1, len(kinds), squeeze=False, width_ratios=widths)
        for place, (kind, axes) in enumerate(zip(kinds, parts.flat, strict=True)):
            whole = dense.left(kind) or ()
            left = row.left(kind)
            _part(axes, kind, whole if left is None else left, whole)  # a kind nothing is said of was not touched
            _blocks(axes, blocks, is_first=place == 0)
    return save(figure, path)


def _shown(rows: Sequence[Row]) -> list[Row]:
    """The dense network and the algorithm's rounds, of the first seed that has any."""
    networks = networks_of(rows)
    names = [DENSE, *algorithms_of(networks)[:1]]
    seeds = [row.seed for one in networks for row in one.rows if one.name == names[-1]]
    return [row for one in networks if one.name in names for row in one.rows if row.seed == min(seeds)]


def _kinds(row: Row) -> tuple[str, ...]:
    return tuple(kind for kind in KINDS if row.left(kind) is not None)


def _caption(kinds: Sequence[str], seed: int) -> str:
    said = {
        "heads": "heads: filled are left, hollow are gone",
        "neurons": "neurons: the bar is left, pale is gone",
        "channels": "channels: the bar is left, pale is gone",
    }
    return f"What is left of every block (seed {seed}).  {'; '.join(said[kind] for kind in kinds)}."


def _title(row: Row) -> str:
    return "dense" if row.network == DENSE else f"{lettering(short_name(row.network), 16)}, round {row.round}"


def _width(kind: str, whole: Sequence[int]) -> float:
    return 1.5 if kind != "heads" or max(whole, default=0) > 8 else 1.0


def _part(axes: Axes, kind: str, left: Sequence[int], whole: Sequence[int]) -> None:
    if kind == "heads":
        _dots(axes, left, whole)
    else:
        _bars(axes, left, whole)
    axes.set_title(f"{kind}\n{sum(left):,} of {sum(whole):,}", fontsize=8, color="0.25")


def _dots(axes: Axes, left: Sequence[int], whole: Sequence[int]) -> None:
    most = max(whole, default=1)
    size = min(5.0, 42.0 / most)
    for filled in (True, False):
        spots = [
            (head, block)
            for block, (kept, count) in enumerate(zip(left, whole, strict=True))
            for head in range(count)
            if (head < kept) == filled
        ]
        look: dict[str, Any] = {
            "markerfacecolor": BLUE if filled else "white",
            "markeredgecolor": BLUE if filled else "0.65",
        }
        axes.plot(*(zip(*spots, strict=True) if spots else ((), ())), "o", markersize=size, markeredgewidth=0.8, **look)
    axes.set_xlim(-0.8, most - 0.2)
    axes.set_xticks([])


def _bars(axes: Axes, left: Sequence[int], whole: Sequence[int]) -> None:
    blocks = range(len(whole))
    axes.barh(blocks, whole, height=0.72, color=PALE)
    axes.barh(blocks, left, height=0.72, color=ORANGE)
    most = max(whole, default=1)
    axes.set_xlim(0, most)
    axes.set_xticks([0, most], ["0", f"{most:,}"], fontsize=7.5)


def _blocks(axes: Axes, blocks: int, *, is_first: bool) -> None:
    """The first block on top, as a network is read."""
    axes.set_ylim(blocks - 0.4, -0.6)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, colors=GREY)
    step = 1 if blocks <= 12 else 2 if blocks <= 24 else 6
    axes.set_yticks(range(0, blocks, step) if is_first else [])
    axes.tick_params(axis="y", labelsize=7.5)
    if is_first:
        axes.set_ylabel("block", fontsize=8, color=GREY)
