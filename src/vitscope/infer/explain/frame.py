"""Where what a model saw lies in the picture itself: the preprocessing's resize and cut, undone.

H W the picture's own size, h w a map over what the model saw.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vitscope.data.config import PreprocessConfig
from vitscope.data.preprocess import cut_at, resized_size


@dataclass(frozen=True)
class Frame:
    """A picture's size, and the part of it that a model was shown."""

    size: tuple[int, int]
    """(height, width) of the picture."""
    box: tuple[float, float, float, float]
    """Left, top, right and bottom of what was seen, in the picture's pixels."""

    @property
    def sees_all(self) -> bool:
        left, top, right, bottom = self.box
        return left <= 0.5 and top <= 0.5 and right >= self.size[1] - 0.5 and bottom >= self.size[0] - 0.5

    def scaled(self, size: tuple[int, int]) -> Frame:
        """The same, were the picture of another size."""
        y, x = size[0] / self.size[0], size[1] / self.size[1]
        left, top, right, bottom = self.box
        return Frame(size, (left * x, top * y, right * x, bottom * y))

    def spread(self, values: np.ndarray, *, smooth: bool = True) -> np.ndarray:
        """A map (h, w) over what was seen as one over the whole picture (H, W); NaN where nothing was seen. `smooth`
        goes evenly from the middle of one patch to the next; else every patch is one flat tile."""
        left, top, right, bottom = self.box
        down = _weights(self.size[0], top, bottom, values.shape[0], smooth)
        across = _weights(self.size[1], left, right, values.shape[1], smooth)
        return down @ values.astype(np.float32) @ across.T

    def patch_box(self, patch: tuple[int, int], grid: tuple[int, int]) -> tuple[float, float, float, float]:
        """Left, top, right and bottom of one patch, in the picture's pixels."""
        left, top, right, bottom = self.box
        height, width = (bottom - top) / grid[0], (right - left) / grid[1]
        y, x = top + patch[0] * height, left + patch[1] * width
        return x, y, x + width, y + height


def frame_of(size: tuple[int, int], config: PreprocessConfig) -> Frame:
    """For a picture of `size` (height, width) that is prepared by `config`."""
    resized = resized_size(size, config)
    top, left = cut_at(resized, config)
    y, x = size[0] / resized[0], size[1] / resized[1]
    height, width = config.img_size
    return Frame(size, (left * x, top * y, (left + width) * x, (top + height) * y))


def whole(size: tuple[int, int]) -> Frame:
    """For what was seen as it is."""
    return Frame(size, (0.0, 0.0, float(size[1]), float(size[0])))


def _weights(pixels: int, start: float, end: float, cells: int, smooth: bool) -> np.ndarray:
    """(pixels, cells): how much of each cell a pixel shows; rows sum to 1, or are NaN outside."""
    place = (np.arange(pixels) + 0.5 - start) / (end - start) * cells
    outside = (place < 0) | (place > cells)
    if smooth:
        place = np.clip(place - 0.5, 0, cells - 1)
        low = np.minimum(np.floor(place).astype(int), cells - 1)
        share = place - low
    else:
        low = np.clip(np.floor(place).astype(int), 0, cells - 1)
        share = np.zeros(pixels)
    weights = np.zeros((pixels, cells), np.float32)
    rows = np.arange(pixels)
    weights[rows, low] = 1 - share
    weights[rows, np.minimum(low + 1, cells - 1)] += share
    weights[outside] = np.nan
    return weights
