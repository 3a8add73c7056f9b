"""How training pictures are varied. A named strength is a row in a table, not a class."""

from __future__ import annotations

import math
from typing import Literal

from vitscope.core.config import config, require, updated
from vitscope.core.errors import UsageError
from vitscope.core.suggest import did_you_mean

SMALL_PICTURE = 112
"""Up to this side a picture is treated as CIFAR-sized; above it as a photograph."""


@config
class AugmentConfig:
    """How training pictures are varied, in the order of the fields. Evaluation never varies anything."""

    crop: Literal["none", "padded", "resized", "margin"] = "none"
    """`padded`: pad by `padding`, cut the size out anywhere. `resized`: a random part, stretched to the size.
    `margin`: resize to the size + `margin`, cut the size out anywhere."""
    padding: int = 4
    """Pixels of black around the picture, for `crop: padded`."""
    margin: int = 32
    """Pixels by which the picture is larger than what is cut out, for `crop: margin`."""
    crop_scale: tuple[float, float] = (0.08, 1.0)
    """Least and largest share of the area, for `crop: resized`."""
    crop_ratio: tuple[float, float] = (3 / 4, 4 / 3)
    """Least and largest width / height, for `crop: resized`."""
    flip: Literal["none", "random", "alternating"] = "none"
    """Mirror left and right: by chance, or by chance in epoch 0 and every other epoch the other way round."""
    rotate_degrees: float = 0.0
    """Turn by up to this angle either way."""
    jitter: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    """Brightness, contrast, saturation and hue: each drawn within 1 +- value (hue: +- value), in random order."""
    randaugment_ops: int = 0
    """Operations RandAugment applies to each picture."""
    randaugment_magnitude: int = 9
    """Their strength, 0 to 30."""
    erase_prob: float = 0.0
    """Chance that a random rectangle is painted with the mean colour."""
    erase_scale: tuple[float, float] = (0.02, 0.33)
    """Least and largest share of the area that is painted over."""
    erase_ratio: tuple[float, float] = (0.3, 3.3)
    """Least and largest height / width of what is painted over."""
    cutout_size: int = 0
    """Side in pixels of a square painted with the mean colour, its centre anywhere in the picture."""
    mixup_alpha: float = 0.0
    """Mixup: pictures and labels are blended in a share drawn from Beta(alpha, alpha)."""
    cutmix_alpha: float = 0.0
    """CutMix: a rectangle of a share drawn from Beta(alpha, alpha) comes from another picture."""
    mix_prob: float = 1.0
    """Chance that a picture is mixed at all."""
    cutmix_prob: float = 0.5
    """Where both mixes are on, the chance of CutMix."""

    def __post_init__(self) -> None:
        for name in ("padding", "margin", "randaugment_ops", "cutout_size"):
            require(0 <= getattr(self, name) <= 10_000, name, "from 0 to 10,000", getattr(self, name))
        require(0 <= self.randaugment_magnitude <= 30, "randaugment_magnitude", "0 to 30", self.randaugment_magnitude)
        require(self.randaugment_ops <= 14, "randaugment_ops", "0 to 14", self.randaugment_ops)
        require(0 <= self.rotate_degrees <= 180, "rotate_degrees", "0 to 180", self.rotate_degrees)
        for name in ("erase_prob", "mix_prob", "cutmix_prob"):
            require(0 <= getattr(self, name) <= 1, name, "a chance from 0 to 1", getattr(self, name))
        for name in ("mixup_alpha", "cutmix_alpha"):
            require(0 <= getattr(self, name) <= 100, name, "from 0 to 100", getattr(self, name))
        for name in ("crop_scale", "erase_scale"):
            low, high = getattr(self, name)
            require(0 < low <= high <= 1, name, "two rising shares above 0, up to 1", (low, high))
        for name in ("crop_ratio", "erase_ratio"):
            low, high = getattr(self, name)
            require(0 < low <= high < math.inf, name, "two rising positive numbers", (low, high))
        require(all(0 <= value <= 1 for value in self.jitter[:3]), "jitter", "shares from 0 to 1", self.jitter)
        require(0 <= self.jitter[3] <= 0.5, "jitter", "a hue from 0 to 0.5 in the last place", self.jitter)

    @property
    def mixes(self) -> bool:
        """True if labels become shares of several classes."""
        return self.mix_prob > 0 and (self.mixup_alpha > 0 or self.cutmix_alpha > 0)


# For CIFAR-sized pictures, and for photographs.
_BASIC = AugmentConfig(crop="padded", flip="random", jitter=(0.2, 0.2, 0.2, 0.1))
_BASIC_LARGE = AugmentConfig(crop="margin", flip="random", rotate_degrees=10.0, jitter=(0.4, 0.4, 0.4, 0.1))
_STRONG = AugmentConfig(
    crop="resized",
    flip="random",
    randaugment_ops=2,
    randaugment_magnitude=9,
    erase_prob=0.25,
    mixup_alpha=0.8,
    cutmix_alpha=1.0,
)
_SMALL = {
    "none": AugmentConfig(),
    "basic": _BASIC,
    "medium": updated(_BASIC, randaugment_ops=1, randaugment_magnitude=7, mixup_alpha=0.2),
    "strong": updated(_STRONG, crop_scale=(0.5, 1.0)),  # a twelfth of 32 x 32 pixels shows nothing
}
_LARGE = {
    "none": AugmentConfig(),
    "basic": _BASIC_LARGE,
    "medium": updated(_BASIC_LARGE, rotate_degrees=15.0, randaugment_ops=1, randaugment_magnitude=7, mixup_alpha=0.2),
    "strong": _STRONG,
}
STRENGTHS = tuple(_SMALL)


def augmentation(strength: str, img_size: int | tuple[int, int] = 32) -> AugmentConfig:
    """The settings a named strength (none, basic, medium, strong) stands for, for pictures of this size."""
    if strength not in STRENGTHS:
        known = ", ".join(STRENGTHS)
        raise UsageError(
            f"unknown augmentation '{strength}'", where=f"known: {known}", fix=did_you_mean(strength, STRENGTHS)
        )
    side = img_size if isinstance(img_size, int) else max(img_size)
    return (_SMALL if side <= SMALL_PICTURE else _LARGE)[strength]


def strength_of(augment: AugmentConfig, img_size: int | tuple[int, int]) -> str | None:
    """The named strength that stands for these settings at this size; None if none does."""
    return next((name for name in STRENGTHS if augmentation(name, img_size) == augment), None)
