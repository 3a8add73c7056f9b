"""From a decoded picture to the pixels a model is shown, varied one picture at a time.

Every operation works on Pillow's picture: measured at 32 and 160 pixels, all but resizing are faster there than on a
tensor (colour jitter and RandAugment two to three times), and evaluation resizes with Pillow too. What paints over or
blends pictures, and normalising, is left to the device, a batch at a time.

Draws come from torch's default generator: whoever calls seeds it. Only mirroring is told from outside, since its coin
may have to last over epochs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from PIL.Image import Transpose
from torch import Tensor

from vitscope.data.config import AugmentConfig, PreprocessConfig
from vitscope.data.preprocess import pixels_of, resize, to_pixels

if TYPE_CHECKING:
    from PIL.Image import Image

    from vitscope.data.transforms.picture_steps import Step


def picture_transform(augment: AugmentConfig | None, preprocess: PreprocessConfig) -> PictureTransform:
    """A function from a picture to uint8 (C, H, W) of `preprocess.img_size`. `augment` None is evaluation."""
    return PictureTransform(augment, preprocess)


class PictureTransform:
    """Crop, mirror, turn, jitter, RandAugment, in the order of AugmentConfig's fields. Can be pickled."""

    def __init__(self, augment: AugmentConfig | None, preprocess: PreprocessConfig) -> None:
        self.augment = augment
        self.preprocess = preprocess
        self.crop: Step | None = None
        self.steps: list[Step] = []
        if augment is not None:
            # Only here: torchvision takes as long to import as torch itself, and evaluation needs none of it.
            from vitscope.data.transforms.picture_steps import after_flip, crop

            self.crop, self.steps = crop(augment, preprocess), after_flip(augment)
        self.is_random = self.crop is not None or bool(self.steps)
        """Whether anything is drawn. Mirroring is not: it is told."""

    def __call__(self, picture: Image, *, mirrored: bool = False) -> Tensor:
        """uint8 (C, H, W). Without variation exactly what evaluation and prediction do."""
        if not (self.is_random or mirrored):
            return to_pixels(picture, self.preprocess)
        mode = "L" if self.preprocess.in_chans == 1 else "RGB"
        if picture.mode != mode:
            picture = picture.convert(mode)
        picture = resize(picture, self.preprocess) if self.crop is None else self.crop(picture)
        if mirrored:
            picture = picture.transpose(Transpose.FLIP_LEFT_RIGHT)
        for step in self.steps:
            picture = step(picture)
        return pixels_of(picture)
