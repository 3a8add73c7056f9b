"""From a picture to the tensor a model reads, by the settings that travel with its weights.

Pixel for pixel what torchvision's Resize and CenterCrop (and so timm's evaluation transform) do to a PIL picture; with
the `tensor` resizer, what the image processors of transformers do.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from PIL.Image import Resampling
from torch import Tensor

from vitscope.core.errors import DataError, expected
from vitscope.data.config import PreprocessConfig

if TYPE_CHECKING:
    from PIL.Image import Image


FILTERS = {"bicubic": Resampling.BICUBIC, "bilinear": Resampling.BILINEAR, "nearest": Resampling.NEAREST}
TENSOR_FILTERS = {"bicubic": "bicubic", "bilinear": "bilinear", "nearest": "nearest-exact"}
"""torchvision's words. Plain `nearest` takes other pixels than Pillow's."""
MOST_WASTE = 64
"""A picture that would be resized to more than this many times the area kept is cut first."""


def resize(picture: Image, config: PreprocessConfig) -> Image:
    """The part of the picture the model will see, at the size it will see it."""
    height, width = config.img_size
    down, across = resized_size((picture.height, picture.width), config)
    top, left = cut_at((down, across), config)
    if down * across <= MOST_WASTE * height * width:
        return _resampled(picture, (down, across), config).crop((left, top, left + width, top + height))
    # A picture one pixel high would grow to gigabytes. The same cut, in the coordinates of the picture as it is.
    x, y = picture.width / across, picture.height / down
    box = (left * x, top * y, min((left + width) * x, picture.width), min((top + height) * y, picture.height))
    return picture.resize((width, height), FILTERS[config.interpolation], box=box)


def _resampled(picture: Image, size: tuple[int, int], config: PreprocessConfig) -> Image:
    """The whole picture at (height, width)."""
    if config.resizer == "pillow":
        return picture.resize((size[1], size[0]), FILTERS[config.interpolation])
    # Only here: what torchvision imports takes as long as torch itself, and most programs resize with Pillow.
    from torchvision.transforms.v2 import InterpolationMode
    from torchvision.transforms.v2 import functional as T

    mode = InterpolationMode(TENSOR_FILTERS[config.interpolation])
    return T.to_pil_image(T.resize(pixels_of(picture), list(size), interpolation=mode, antialias=True))


def cut_at(resized: tuple[int, int], config: PreprocessConfig) -> tuple[int, int]:
    """(top, left) of the middle that is cut out of the resized picture (height, width)."""
    down, across = resized[0] - config.img_size[0], resized[1] - config.img_size[1]
    return (round(down / 2), round(across / 2)) if config.resizer == "pillow" else (down // 2, across // 2)


def resized_size(size: tuple[int, int], config: PreprocessConfig) -> tuple[int, int]:
    """(height, width) of the whole picture just before its middle is cut out.

    The middle plus its margin, `floor(img_size / crop_share)`, must be covered. Squashed, it is just that. Else the
    shape is kept. Square: the shorter side is made as long, the longer follows, rounded down (torchvision). Not square:
    the tighter side decides, both are rounded to the nearest (timm's `ResizeKeepRatio`, here with the interpolation
    asked for).
    """
    height, width = (math.floor(side / config.crop_share) for side in config.img_size)
    if config.crop == "squash":
        return height, width
    if height == width:
        short, long = min(size), max(size)
        longer = int(height * long / short)
        return (height, longer) if size[0] <= size[1] else (longer, height)
    ratio = min(size[0] / height, size[1] / width)
    return max(height, round(size[0] / ratio)), max(width, round(size[1] / ratio))


def to_pixels(picture: Image, config: PreprocessConfig) -> Tensor:
    """(C, H, W) of uint8: what evaluation shows the model, before it is normalised."""
    if config.in_chans not in (1, 3):
        raise DataError(expected("in_chans", "1 (grey) or 3 (RGB) for pictures", config.in_chans))
    return pixels_of(resize(picture.convert("L" if config.in_chans == 1 else "RGB"), config))


def pixels_of(picture: Image) -> Tensor:
    """(C, H, W) of uint8, grey or RGB, as they are."""
    pixels = torch.from_numpy(np.array(picture))
    return pixels.view(picture.height, picture.width, -1).permute(2, 0, 1)


def normalise(pixels: Tensor, config: PreprocessConfig) -> Tensor:
    """(..., C, H, W) of uint8 as float32 by the settings' mean and std."""
    mean, std = (
        torch.tensor(of_channels, device=pixels.device).view(-1, 1, 1) for of_channels in (config.mean, config.std)
    )
    return pixels.to(torch.float32).mul_(1 / 255).sub_(mean).div_(std)  # in this order, for torchvision's last bit


def preprocess(picture: Image, config: PreprocessConfig) -> Tensor:
    """(C, H, W), normalised."""
    return normalise(to_pixels(picture, config), config)
