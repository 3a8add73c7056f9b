"""From a picture to the tensor a model reads, by the settings that travel with its weights.

Pixel for pixel what torchvision's Resize and CenterCrop (and so timm's evaluation transform) do to a PIL picture; with
the `tensor` resizer, what the image processors of transformers do.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from PIL.Image import Resampling
from torch import Tensor
from torchvision.transforms.v2 import functional as T

from vitscope.core.errors import DataError, expected
from vitscope.data.config import PreprocessConfig

if TYPE_CHECKING:
    from PIL.Image import Image


FILTERS = {"bicubic": Resampling.BICUBIC, "bilinear": Resampling.BILINEAR, "nearest": Resampling.NEAREST}
TENSOR_FILTERS = {
    "bicubic": T.InterpolationMode.BICUBIC,
    "bilinear": T.InterpolationMode.BILINEAR,
    "nearest": T.InterpolationMode.NEAREST_EXACT,  # plain `nearest` takes other pixels than Pillow's
}
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
    mode = TENSOR_FILTERS[config.interpolation]
    return T.to_pil_image(T.resize(T.pil_to_tensor(picture), list(size), interpolation=mode, antialias=True))


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
    return T.pil_to_tensor(resize(picture.convert("L" if config.in_chans == 1 else "RGB"), config))


def normalise(pixels: Tensor, config: PreprocessConfig) -> Tensor:
    """(..., C, H, W) of uint8 as float32 by the settings' mean and std."""
    return T.normalize(T.to_dtype(pixels, scale=True), list(config.mean), list(config.std))


def preprocess(picture: Image, config: PreprocessConfig) -> Tensor:
    """(C, H, W), normalised."""
    return normalise(to_pixels(picture, config), config)
