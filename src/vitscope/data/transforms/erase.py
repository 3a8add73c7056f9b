"""Painting rectangles of normalised pictures with 0, the mean colour: random erasing and cutout.

Random erasing: Zhong et al. 2017, as torchvision's RandomErasing. Cutout: DeVries and Taylor 2017.
B pictures, C channels, H height, W width.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vitscope.data.draws import coins, integers
from vitscope.data.transforms.resized import first, rectangles
from vitscope.data.transforms.streams import Stream


def erase_places(
    keys: Tensor, img_size: tuple[int, int], prob: float, scale: tuple[float, float], ratio: tuple[float, float]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Top, left, height, width (B,) int64 of what is painted over; both lengths 0 where nothing is.

    The first of ten attempts that is smaller than the picture on both sides; where none is, nothing is painted.
    """
    height, width = img_size
    area, aspect = rectangles(keys, Stream.ERASE_AREA, Stream.ERASE_RATIO, height * width, scale, ratio)
    down, across = (area * aspect).sqrt().round(), (area / aspect).sqrt().round()
    fits = (down < height) & (across < width)
    chosen = first(fits)
    painted = coins(keys, Stream.ERASE, prob) & fits.any(dim=1)
    down = torch.where(painted, down.gather(1, chosen)[:, 0].long(), 0)
    across = torch.where(painted, across.gather(1, chosen)[:, 0].long(), 0)
    top = integers(keys, Stream.ERASE_TOP, height - down + 1)
    left = integers(keys, Stream.ERASE_LEFT, width - across + 1)
    return top, left, down, across


def cutout_places(keys: Tensor, img_size: tuple[int, int], side: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Top, left, height, width (B,) int64 of a square whose centre is any pixel; it may stick out of the picture."""
    top = integers(keys, Stream.CUTOUT_ROW, img_size[0]) - side // 2
    left = integers(keys, Stream.CUTOUT_COLUMN, img_size[1]) - side // 2
    return top, left, torch.full_like(top, side), torch.full_like(left, side)


def paint(images: Tensor, top: Tensor, left: Tensor, height: Tensor, width: Tensor) -> Tensor:
    """(B, C, H, W) float, 0 within each picture's rectangle."""
    rows = _between(images.shape[2], top, height)
    columns = _between(images.shape[3], left, width)
    return torch.where((rows[:, :, None] & columns[:, None, :])[:, None], 0.0, images)


def _between(count: int, start: Tensor, length: Tensor) -> Tensor:
    places = torch.arange(count, device=start.device)
    return (places >= start[:, None]) & (places < (start + length)[:, None])
