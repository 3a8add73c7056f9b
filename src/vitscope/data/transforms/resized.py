"""A random part of each picture, stretched to one size, as torchvision's RandomResizedCrop (Szegedy et al. 2015).

Resampling is linear and separable, so for each picture it is two matrices that hold the antialiasing filter between
every output and every input line: two batched matrix products for any mix of parts, larger or smaller than the size.
As in torchvision's uint8 arithmetic weights are 16-bit integers and the picture is rounded to whole levels after each
of the two, so nearly all sums are exact in float32, in any order, on any device. Tensor cores may read float32 as TF32,
with 11 bits: hence each weight goes in as two numbers of 8 bits, which every format holds.
B pictures, C channels, h w stored height and width, H W those wanted, K attempts.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from vitscope.data.draws import integers, uniforms
from vitscope.data.transforms.flip import columns
from vitscope.data.transforms.streams import ATTEMPTS, Stream

Interpolation = Literal["bicubic", "bilinear", "nearest"]


def part_places(
    keys: Tensor, stored: tuple[int, int], scale: tuple[float, float], ratio: tuple[float, float]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Top, left, height, width (B,) int64 of a part with a random share of the area and a random width / height.

    The first of ten attempts that fits; where none does, the largest middle part with a ratio in range.
    """
    height, width = stored
    area, aspect = rectangles(keys, Stream.CROP_AREA, Stream.CROP_RATIO, height * width, scale, ratio)
    across, down = (area * aspect).sqrt().round(), (area / aspect).sqrt().round()
    fits = (across > 0) & (across <= width) & (down > 0) & (down <= height)
    chosen = first(fits)
    middle_height, middle_width = _middle_part(stored, ratio)
    found = fits.any(dim=1)
    part_height = torch.where(found, down.gather(1, chosen)[:, 0].long(), middle_height)
    part_width = torch.where(found, across.gather(1, chosen)[:, 0].long(), middle_width)
    top = integers(keys, Stream.CROP_TOP, height - part_height + 1)
    left = integers(keys, Stream.CROP_LEFT, width - part_width + 1)
    top = torch.where(found, top, (height - middle_height) // 2)
    left = torch.where(found, left, (width - middle_width) // 2)
    return top, left, part_height, part_width


def rectangles(
    keys: Tensor,
    area_stream: int,
    ratio_stream: int,
    area: int,
    scale: tuple[float, float],
    ratio: tuple[float, float],
) -> tuple[Tensor, Tensor]:
    """Areas and ratios (B, K) of the attempts: area uniform, ratio uniform in its logarithm."""
    low, high = math.log(ratio[0]), math.log(ratio[1])
    areas = area * (scale[0] + uniforms(keys, area_stream, ATTEMPTS) * (scale[1] - scale[0]))
    ratios = (low + uniforms(keys, ratio_stream, ATTEMPTS) * (high - low)).exp()
    return areas, ratios


def first(flags: Tensor) -> Tensor:
    """(B, 1) int64: the first true of (B, K), 0 where there is none."""
    return flags.to(torch.uint8).argmax(dim=1, keepdim=True)


def _middle_part(stored: tuple[int, int], ratio: tuple[float, float]) -> tuple[int, int]:
    height, width = stored
    if width / height < ratio[0]:
        return round(width / ratio[0]), width
    if width / height > ratio[1]:
        return height, round(height * ratio[1])
    return height, width


def resized_crop(
    images: Tensor,
    top: Tensor,
    left: Tensor,
    height: Tensor,
    width: Tensor,
    size: tuple[int, int],
    interpolation: Interpolation = "bilinear",
    flips: Tensor | None = None,
) -> Tensor:
    """(B, C, H, W) uint8: the parts of pictures (B, C, h, w), stretched to `size`, then mirrored."""
    channels, stored_height, stored_width = images.shape[1:]
    lines = torch.arange(size[0], device=images.device)[None]
    down = _weights(lines, top, height, size[0], stored_height, interpolation)
    across = _weights(columns(size[1], flips, images), left, width, size[1], stored_width, interpolation)
    with torch.autocast(images.device.type, enabled=False):
        coarse, fine = _halves(across.transpose(1, 2))
        pixels = images.to(torch.float32).flatten(1, 2)
        pixels = _levels(pixels @ coarse + pixels @ fine).unflatten(1, (channels, stored_height))
        coarse, fine = _halves(down[:, None])
        return _levels(coarse @ pixels + fine @ pixels).to(torch.uint8)


def _halves(weights: Tensor) -> tuple[Tensor, Tensor]:
    """Two numbers of few bits that add up to each weight."""
    coarse = (weights * 256).round() / 256
    return coarse, weights - coarse


def _levels(pixels: Tensor) -> Tensor:
    return (pixels + 0.5).floor().clamp(0, 255)


def _weights(
    places: Tensor, start: Tensor, length: Tensor, size: int, stored: int, interpolation: Interpolation
) -> Tensor:
    """(B, size, stored): how much each stored line counts for each line wanted; nothing outside the part counts."""
    scale = (length.to(torch.float32) / size)[:, None, None]
    places = places[:, :, None]
    lines = torch.arange(stored, device=start.device) - start[:, None, None]
    if interpolation == "nearest":
        return (lines == (places * scale).floor()).to(torch.float32)
    distance = (lines + 0.5 - (places + 0.5) * scale) / scale.clamp(min=1)
    weights = _cubic(distance) if interpolation == "bicubic" else (1 - distance.abs()).clamp(min=0)
    weights = weights * ((lines >= 0) & (lines < length[:, None, None]))
    return _sixteen_bits(weights / weights.sum(dim=2, keepdim=True))


def _sixteen_bits(weights: Tensor) -> Tensor:
    """The weights (B, size, stored), rounded as finely as the largest of each picture still fits into an int16."""
    most = weights.amax(dim=(1, 2), keepdim=True)
    places = ((32767.5 / most).log2().ceil() - 1).clamp(max=22).long()
    unit = (torch.ones_like(places) << places).to(torch.float32)
    return (weights * unit).round() / unit


def _cubic(distance: Tensor) -> Tensor:
    """Keys' cubic convolution kernel with a = -0.5, which Pillow and torch's antialiasing use."""
    x = distance.abs().clamp(max=2)
    near = (1.5 * x - 2.5) * x * x + 1
    far = ((-0.5 * x + 2.5) * x - 4) * x + 2
    return torch.where(x < 1, near, far)
