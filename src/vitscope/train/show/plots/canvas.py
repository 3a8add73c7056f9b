"""What every picture of a run shares: colours, size, and how it is written."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitscope.core.files import write_atomically
from vitscope.data.survey.contact_sheet import FONT, drawable, shortened_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette: told apart by people who see colours differently, and in grey print.
BLUE, ORANGE, GREEN, RED, GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#666666"
WIDTH = 8.0
"""Inches; 1200 pixels, and readable when shown at 800."""
DPI = 150


def new_figure(height: float, width: float = WIDTH, *, arranged: bool = True) -> Figure:
    """A figure of its own: pyplot's would be shared by all threads and kept until closed. `arranged`: matplotlib finds
    the places of its parts."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=DPI, layout="constrained" if arranged else None, facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def plain_axes(axes: Axes, *, x: str = "", y: str = "", title: str = "") -> None:
    """A quiet frame: a light grid, no lines above and to the right."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(True, color="0.9", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.set_title(title, fontsize=11, loc="left", fontweight="bold")


def nothing_to_draw(axes: Axes, text: str) -> None:
    """Say so in the middle, instead of an empty frame."""
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=GREY)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.grid(False)


def lettering(text: str, longest: int) -> str:
    """A name as it can be drawn: shortened, without characters the font lacks."""
    return drawable(shortened_name(text, longest))


def written(**look: Any) -> dict[str, Any]:
    """How names are written: in the font whose letters are known, and never as a formula."""
    return {"family": FONT, "parse_math": False, **look}


def save(figure: Figure, path: str | Path) -> Path:
    """As a PNG, all of it or the old one. The same figure gives the same bytes: no version, no time."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=DPI, metadata={"Software": None})
    write_atomically(path, content.getvalue())
    return path
