"""The steps that vary a picture: torchvision's transforms, on Pillow's picture. They draw from torch's default
generator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from PIL.Image import Resampling
from torchvision.transforms import InterpolationMode, v2

from vitscope.core.config import updated
from vitscope.data.config import AugmentConfig, PreprocessConfig
from vitscope.data.preprocess import FILTERS, resize, resized_size

if TYPE_CHECKING:
    from collections.abc import Callable

    from PIL.Image import Image

    Step = Callable[[Image], Image]

MODES = {
    Resampling.BICUBIC: InterpolationMode.BICUBIC,
    Resampling.BILINEAR: InterpolationMode.BILINEAR,
    Resampling.NEAREST: InterpolationMode.NEAREST,
}


def crop(augment: AugmentConfig, preprocess: PreprocessConfig) -> Step | None:
    match augment.crop:
        case "padded":
            return _Padded(augment.padding, preprocess)
        case "resized":
            return v2.RandomResizedCrop(
                list(preprocess.img_size),
                scale=augment.crop_scale,
                ratio=augment.crop_ratio,
                interpolation=MODES[FILTERS[preprocess.interpolation]],
            )
        case "margin":
            return _Margin(augment.margin, preprocess)
    return None


def after_flip(augment: AugmentConfig) -> list[Step]:
    steps: list[Step] = []
    if augment.rotate_degrees > 0:
        degrees = (-augment.rotate_degrees, augment.rotate_degrees)
        steps.append(v2.RandomRotation(degrees, interpolation=InterpolationMode.BILINEAR, fill=0))
    if any(augment.jitter):
        brightness, contrast, saturation, hue = augment.jitter
        steps.append(v2.ColorJitter(brightness, contrast, saturation, hue))
    if augment.randaugment_ops > 0:
        steps.append(v2.RandAugment(augment.randaugment_ops, augment.randaugment_magnitude))
    return steps


class _Padded:
    """What evaluation shows, in a black frame, and of that the size cut out anywhere."""

    def __init__(self, padding: int, preprocess: PreprocessConfig) -> None:
        self.preprocess = preprocess
        self.cut = v2.RandomCrop(list(preprocess.img_size), padding=padding, fill=0)

    def __call__(self, picture: Image) -> Image:
        return self.cut(resize(picture, self.preprocess))


class _Margin:
    """Resized so that the size plus a margin is just covered, and the size cut out anywhere.

    The cut is drawn first and only its pixels are resampled: the same picture (to a rounding) for less work, and a
    picture one pixel high does not grow to gigabytes.
    """

    def __init__(self, margin: int, preprocess: PreprocessConfig) -> None:
        height, width = preprocess.img_size
        self.size = (height, width)
        self.larger = updated(preprocess, img_size=(height + margin, width + margin), crop_share=1.0)
        self.resampling = FILTERS[preprocess.interpolation]

    def __call__(self, picture: Image) -> Image:
        height, width = self.size
        down, across = resized_size((picture.height, picture.width), self.larger)
        top = int(torch.randint(down - height + 1, ()))
        left = int(torch.randint(across - width + 1, ()))
        x, y = picture.width / across, picture.height / down
        box = (left * x, top * y, min((left + width) * x, picture.width), min((top + height) * y, picture.height))
        return picture.resize((width, height), self.resampling, box=box)
