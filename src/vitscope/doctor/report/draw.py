"""A picture's numbers as SVG that takes its ink from the page it stands on, so that one drawing fits light and dark."""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vitscope.doctor.picture import Line, Picture
from vitscope.train.show.plots.canvas import GREEN, ORANGE, RED, lettering, new_figure, plain_axes, written

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK = "#010203"
"""Stands for the page's own colour of text, and is replaced by it."""
COLOURS = ("#2F8FCE", ORANGE, GREEN, RED, "#CC79A7", "#56B4E9", "#888888")
"""Okabe and Ito's, the blue lighter: it must also be seen on black."""
WIDTH, HEIGHT = 6.4, 2.8
"""Inches; narrow, so that letters can be read on a phone."""
LONGEST_LABEL = 28
MOST_IN_LEGEND = 8
COUNTED = ("epoch", "step", "layer", "block")
"""What is numbered: half a layer is none."""
MOST_NAMES = 16
"""Bars beyond this have no room for their names."""
LEVEL, AROUND = 0.02, 0.1
"""Numbers that differ by less than this share of their size are one level: it is drawn with so much around it, and not
the rounding of its last digits."""


def as_svg(picture: Picture, number: int = 0) -> str:
    """An `<svg>` element to stand inside a page. `number` tells the drawings of one page apart."""
    from matplotlib import rc_context

    content = io.StringIO()
    # Text stays text: it can be searched, read aloud, and is small. A salt makes the same bytes of the same numbers.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": f"picture {number}"}), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of layout and empty axes; there is nobody here to tell
        figure = new_figure(HEIGHT, WIDTH)
        figure.patch.set_alpha(0.0)
        axes = figure.add_subplot()
        axes.patch.set_alpha(0.0)
        _draw(axes, picture)
        figure.savefig(content, format="svg", metadata={"Date": None, "Creator": None})
    return _for_a_page(content.getvalue(), picture, number)


def _draw(axes: Axes, picture: Picture) -> None:
    plain_axes(axes)
    axes.grid(True, color=INK, alpha=0.12, linewidth=0.8)
    draw = _bars if picture.kind == "bars" else _lines
    draw(axes, picture.lines)
    if picture.log_x and picture.kind == "lines":
        axes.set_xscale("log")
    if picture.log_y:
        axes.set_yscale("log")
    else:
        _keep_level(axes)
    if picture.level is not None and math.isfinite(picture.level):
        axes.axhline(picture.level, color=INK, alpha=0.6, linestyle="--", linewidth=1.0)
    if picture.mark is not None and math.isfinite(picture.mark):
        axes.axvline(picture.mark, color=RED, linestyle=":", linewidth=1.4)
    axes.set_xlabel(lettering(picture.x, 80), **written(color=INK))
    axes.set_ylabel(lettering(picture.y, 60), **written(color=INK))
    _plain_numbers(axes, picture)
    axes.tick_params(which="both", colors=INK)
    for spine in axes.spines.values():
        spine.set_edgecolor(INK)
    if 1 < len(picture.lines) <= MOST_IN_LEGEND:
        legend = axes.legend(frameon=False, fontsize=9, labelcolor=INK)
        for text in legend.get_texts():
            text.set_parse_math(False)


def _lines(axes: Axes, lines: Sequence[Line]) -> None:
    for line, colour in zip(lines, _colours(len(lines)), strict=True):
        few = {"marker": "o", "markersize": 4.0} if len(line.y) <= 30 else {}
        x: Any = list(line.x)
        axes.plot(x, _numbers(line.y), color=colour, linewidth=1.6, label=_label(line), **few)


def _bars(axes: Axes, lines: Sequence[Line]) -> None:
    """Side by side, where there are several at a place."""
    if not lines:
        return
    width = 0.8 / len(lines)
    names = [str(name) for name in max((line.x for line in lines), key=len)]
    for place, (line, colour) in enumerate(zip(lines, _colours(len(lines)), strict=True)):
        left = [number + (place - (len(lines) - 1) / 2) * width for number in range(len(line.y))]
        axes.bar(left, _numbers(line.y), width, color=colour, label=_label(line))
    if len(names) <= MOST_NAMES:
        slanted = sum(map(len, names)) > 60
        look = written(rotation=30, ha="right") if slanted else written()
        axes.set_xticks(range(len(names)), [lettering(name, 24) for name in names], **look)


def _keep_level(axes: Axes) -> None:
    low, high = axes.get_ylim()
    size = max(abs(low), abs(high))
    if high - low < LEVEL * size:
        middle = (low + high) / 2
        axes.set_ylim(middle - AROUND * size, middle + AROUND * size)


def _plain_numbers(axes: Axes, picture: Picture) -> None:
    """0.001 instead of a formula, which text that is never a formula could not show; a few numbers also within a power
    of ten; whole epochs, steps and layers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    plain = FuncFormatter(lambda value, _: f"{value:g}")
    for axis, is_log in ((axes.xaxis, picture.log_x and picture.kind == "lines"), (axes.yaxis, picture.log_y)):
        if is_log:
            low, high = sorted(axis.get_view_interval())
            if 0 < low < high < 100 * low:
                axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axis.set_major_formatter(plain)
            axis.set_minor_formatter(NullFormatter())
    is_counted = picture.x in COUNTED if picture.kind == "lines" else not _has_names(picture.lines)
    if is_counted and not picture.log_x:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))


def _has_names(lines: Sequence[Line]) -> bool:
    return max((len(line.x) for line in lines), default=0) <= MOST_NAMES


def _numbers(values: Sequence[float]) -> list[float]:
    """What is not finite leaves a gap."""
    return [float(value) if math.isfinite(value) else math.nan for value in values]


def _colours(count: int) -> list[str]:
    return [COLOURS[number % len(COLOURS)] for number in range(count)]


def _label(line: Line) -> str:
    label = lettering(line.label, LONGEST_LABEL)
    return label if not label.startswith("_") else f" {label}"  # matplotlib leaves labels that begin so out


def _for_a_page(svg: str, picture: Picture, number: int) -> str:
    """Without its head and its rules for the whole document; names that are not used twice; told to who cannot see."""
    from html import escape

    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>\s*", "", svg, flags=re.DOTALL)
    for before in ('id="', 'href="#', "url(#"):
        svg = svg.replace(before, f"{before}p{number}-")
    svg = svg.replace(INK, "currentColor")
    size = re.search(r'viewBox="0 0 [\d.]+ [\d.]+"', svg)
    shape = f" {size.group()}" if size else ""
    title = escape(picture.title, quote=True)
    open_tag = f'<svg{shape} role="img" aria-label="{title}" xmlns:xlink="http://www.w3.org/1999/xlink">'
    return re.sub(r"<svg[^>]*>", lambda _: open_tag, svg, count=1).strip()
