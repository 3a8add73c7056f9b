"""Several views of one picture, so that an answer depends less on how it happens to be cut (test-time augmentation).

A picture is prepared as (V, C, H, W), its V views one after the other, and the answer is the mean of their
probabilities.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from vitscope.core.config import updated
from vitscope.core.errors import UsageError, expected
from vitscope.core.suggest import did_you_mean
from vitscope.data.config import PreprocessConfig
from vitscope.data.config.data import PIXEL_LIMIT
from vitscope.data.decode import decode_image
from vitscope.data.preprocess import to_pixels
from vitscope.infer.pictures import Given
from vitscope.infer.stream import Prepare

View = Literal["flip", "crops"]
VIEWS: tuple[View, ...] = ("flip", "crops")
SHARE = 0.875
"""Of the side of what is seen, that of each corner."""


def refuse_unknown_views(views: Sequence[str]) -> None:
    for view in views:
        if view not in VIEWS:
            raise UsageError(
                expected("views", f"some of {', '.join(VIEWS)}", repr(view)),
                fix=did_you_mean(view, VIEWS) or "'flip' adds the mirrored picture, 'crops' four corners",
            )


def prepare_views(config: PreprocessConfig, views: Sequence[str], *, pixel_limit: int = PIXEL_LIMIT) -> Prepare:
    """From a picture to all its views, the plain one first: `crops` adds four corners, `flip` doubles what there is."""
    views = (views,) if isinstance(views, str) else views
    refuse_unknown_views(views)

    def prepare(given: Given) -> Tensor:
        if isinstance(given.content, Tensor):
            raise ValueError("a tensor that is prepared has no other views: give the picture")
        picture = decode_image(given.content, in_chans=config.in_chans, pixel_limit=pixel_limit)
        seen = to_pixels(picture, config)[None]
        if "crops" in views:
            seen = torch.cat([seen, corners(to_pixels(picture, _wider(config)), config.img_size)])
        return torch.cat([seen, seen.flip(-1)]) if "flip" in views else seen

    return prepare


def corners(pixels: Tensor, size: tuple[int, int]) -> Tensor:
    """The corners of (C, H, W), each of `size` -> (4, C, h, w)."""
    height, width = size
    down, across = pixels.shape[-2] - height, pixels.shape[-1] - width
    places = [(0, 0), (0, across), (down, 0), (down, across)]
    return torch.stack([pixels[..., y : y + height, x : x + width] for y, x in places])


def _wider(config: PreprocessConfig) -> PreprocessConfig:
    """A little more of the picture at the same scale, as far as there is more of it."""
    height, width = (math.ceil(side / SHARE) for side in config.img_size)
    return updated(config, img_size=(height, width), crop_share=min(1.0, config.crop_share / SHARE))
