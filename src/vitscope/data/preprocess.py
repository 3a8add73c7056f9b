"""From a picture to the tensor a model reads, by the settings that travel with its weights."""

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


def resize(picture: Image, config: PreprocessConfig) -> Image:
    """The part of the picture the model will see, at the size it will see it."""
    height, width = config.img_size
    if config.crop == "squash":
        return picture.resize((width, height), FILTERS[config.interpolation])
    least_height, least_width = math.floor(height / config.crop_share), math.floor(width / config.crop_share)
    scale = max(least_height / picture.height, least_width / picture.width)
    size = max(width, round(picture.width * scale)), max(height, round(picture.height * scale))
    left, top = (size[0] - width) // 2, (size[1] - height) // 2
    return picture.resize(size, FILTERS[config.interpolation]).crop((left, top, left + width, top + height))


def preprocess(picture: Image, config: PreprocessConfig) -> Tensor:
    """(C, H, W), normalised."""
    if config.in_chans not in (1, 3):
        raise DataError(expected("in_chans", "1 (grey) or 3 (RGB) for pictures", config.in_chans))
    picture = resize(picture.convert("L" if config.in_chans == 1 else "RGB"), config)
    pixels = T.to_dtype(T.pil_to_tensor(picture), scale=True)
    return T.normalize(pixels, list(config.mean), list(config.std))
