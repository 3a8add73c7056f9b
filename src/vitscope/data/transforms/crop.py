"""Cutting a window out of each picture of a batch, at its own place, as torchvision's RandomCrop.

One gather for the whole batch; a mirror image costs nothing, its columns are only read from right to left.
B pictures, C channels, h w stored height and width, H W those of the window.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vitscope.core.errors import InputError, expected
from vitscope.data.draws import integers
from vitscope.data.transforms.flip import columns
from vitscope.data.transforms.streams import Stream


def crop_places(
    keys: Tensor, stored: tuple[int, int], size: tuple[int, int], padding: int = 0
) -> tuple[Tensor, Tensor]:
    """Top and left (B,) of a window of `size`, anywhere in a stored picture with `padding` around it."""
    down, across = (have + 2 * padding - want for have, want in zip(stored, size, strict=True))
    if min(down, across) < 0:
        raise InputError(
            expected("pictures", f"at least {size[0]} x {size[1]} pixels to cut from", f"{stored[0]} x {stored[1]}"),
            where=f"with {padding} pixels of padding",
        )
    return integers(keys, Stream.CROP_TOP, down + 1), integers(keys, Stream.CROP_LEFT, across + 1)


def padded_crop(
    images: Tensor, top: Tensor, left: Tensor, padding: int, size: tuple[int, int], flips: Tensor | None = None
) -> Tensor:
    """(B, C, H, W): windows of pictures (B, C, h, w) with `padding` black pixels around them, then mirrored.

    `top` and `left` (B,) count from the corner of the padding.
    """
    height, width = images.shape[-2:]
    down = top[:, None] - padding + torch.arange(size[0], device=images.device)
    across = left[:, None] - padding + columns(size[1], flips, images)
    places = down.clamp(0, height - 1)[:, :, None] * width + across.clamp(0, width - 1)[:, None, :]
    window = images.flatten(2).gather(2, places.flatten(1)[:, None].expand(-1, images.shape[1], -1))
    window = window.unflatten(2, size)
    if padding == 0:
        return window
    inside = ((down >= 0) & (down < height))[:, :, None] & ((across >= 0) & (across < width))[:, None, :]
    return window * inside[:, None]


def cut(images: Tensor, top: Tensor, left: Tensor, size: tuple[int, int], flips: Tensor | None = None) -> Tensor:
    """(B, C, H, W): windows of pictures that are stored larger, then mirrored."""
    return padded_crop(images, top, left, 0, size, flips)
