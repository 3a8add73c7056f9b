"""What must happen to a picture before a model sees it."""

from __future__ import annotations

import math
from typing import Literal

from vitscope.core.config import config, require

NORMALISATIONS: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "half": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "mnist": ((0.1307,), (0.3081,)),
}
"""Name -> mean and std per channel. Only `half` keeps pixels within -1 and 1."""


@config
class PreprocessConfig:
    """What happens to a picture between its file and the model. Travels with the weights."""

    img_size: tuple[int, int] = (224, 224)
    """Height and width the model expects, in pixels."""
    in_chans: int = 3
    """Channels the model expects: 3 (RGB) or 1 (grey)."""
    crop: Literal["centre", "squash"] = "centre"
    """Keep the shape and cut the middle out, or squash the whole picture into the size."""
    crop_share: float = 1.0
    """Share of the resized picture's side that the middle cut keeps (timm's crop_pct), squashed or not."""
    interpolation: Literal["bicubic", "bilinear", "nearest"] = "bicubic"
    """How pixels are resampled."""
    resizer: Literal["pillow", "tensor"] = "pillow"
    """Who resamples them: Pillow, as torchvision and timm have it done, or torchvision on tensors, as transformers has
    it done. Single pixels differ by one level. Where the cut cannot lie in the very middle, the first takes the even
    one of the two margins, the second the smaller."""
    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    """Subtracted from each channel, pixels counted from 0 to 1."""
    std: tuple[float, ...] = (0.5, 0.5, 0.5)
    """Each channel is divided by it."""

    def __post_init__(self) -> None:
        require(min(self.img_size) > 0, "img_size", "positive sizes", self.img_size)
        require(self.in_chans > 0, "in_chans", "a positive integer", self.in_chans)
        require(0 < self.crop_share <= 1, "crop_share", "a share above 0, up to 1", self.crop_share)
        for name in ("mean", "std"):
            values = getattr(self, name)
            require(len(values) == self.in_chans, name, f"{self.in_chans} numbers, one per channel", values)
            require(all(map(math.isfinite, values)), name, "finite numbers", values)
        require(min(self.std) > 0, "std", "positive numbers", self.std)


def half_normalised(img_size: tuple[int, int], in_chans: int) -> PreprocessConfig:
    """Mean and std 0.5 on every channel: pixels from -1 to 1."""
    halves = (0.5,) * in_chans
    return PreprocessConfig(img_size=img_size, in_chans=in_chans, mean=halves, std=halves)
