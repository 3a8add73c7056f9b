"""A sheet measured in pixels: pictures pixel for pixel, words beside them, no space left over."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from vitscope.train.show.plots.canvas import DPI, lettering, new_figure, save, written

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MARGIN = 24
LINE = 30
"""Height of a line of words."""
LEAST_SIDE = 24


class Sheet:
    """Places are pixels from the left and from the top."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.figure = new_figure(height / DPI, width / DPI, arranged=False)

    def picture(self, pixels: np.ndarray | Image.Image, left: float, top: float) -> None:
        pixels = np.asarray(pixels)
        below = round(self.height - top - pixels.shape[0])
        self.figure.figimage(pixels, round(left), below, origin="upper", zorder=1)

    def words(self, text: str, left: float, top: float, *, longest: int = 400, **look: Any) -> None:
        """`top` is the middle of the line."""
        look = {"fontsize": 9, "va": "center", **look}
        self.figure.text(left / self.width, 1 - top / self.height, lettering(text, longest), **written(**look))

    def axes(self, left: float, top: float, width: float, height: float) -> Axes:
        bottom = self.height - top - height
        place = (left / self.width, bottom / self.height, width / self.width, height / self.height)
        return self.figure.add_axes(place)

    def frame(self, box: tuple[float, float, float, float], left: float, top: float, colour: str) -> None:
        """A line around a box (left, top, right, bottom) of a picture that is placed there."""
        from matplotlib.patches import Rectangle

        x, y = (left + box[0]) / self.width, 1 - (top + box[3]) / self.height
        width, height = (box[2] - box[0]) / self.width, (box[3] - box[1]) / self.height
        look: dict[str, Any] = {"fill": False, "edgecolor": colour, "linewidth": 1.5, "zorder": 3}
        self.figure.add_artist(Rectangle((x, y), width, height, transform=self.figure.transFigure, **look))

    def colour_bar(
        self, scale: tuple[float, float], left: float, top: float, width: float, *, label: str, name: str, log: bool
    ) -> None:
        """A lying one, 12 pixels high, its numbers and label below."""
        from matplotlib.cm import ScalarMappable
        from matplotlib.colors import LogNorm, Normalize

        axes = self.axes(left, top, width, 12)
        norm = (LogNorm if log else Normalize)(*scale)
        bar = self.figure.colorbar(ScalarMappable(norm, name), cax=axes, orientation="horizontal")
        bar.ax.tick_params(labelsize=8, length=3, pad=2)
        bar.ax.xaxis.set_major_formatter("{x:g}")
        bar.set_label(label, fontsize=8, labelpad=1)
        bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]

    def save(self, path: str | Path) -> Path:
        return save(self.figure, path)


def sized(picture: Image.Image, longest: int, least: int | None = None) -> Image.Image:
    """Its own size where that fits between `least` and `longest`; smaller ones are enlarged by a whole factor."""
    long = max(picture.size)
    scale = longest / long if long > longest else 1.0
    if least is not None and long < least:
        scale = float(max(1, min(-(-least // long), longest // long)))
    size = tuple(max(LEAST_SIDE, round(side * scale)) for side in picture.size)
    if size == picture.size:
        return picture
    return picture.resize(size, Image.Resampling.NEAREST if scale > 1 else Image.Resampling.LANCZOS)  # pyright: ignore
