"""Brightness, contrast, saturation and hue of each picture by its own factor, as torchvision's ColorJitter.

The first three are one thing: a blend of the picture with black, its mean grey, or its own grey picture. Arithmetic and
rounding follow torchvision's uint8 kernels step by step. B pictures, C channels (1 or 3), H height, W width.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vitscope.data.draws import uniforms
from vitscope.data.transforms.streams import Stream

BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)
Strengths = tuple[float, float, float, float]


def jitter_draws(keys: Tensor, strengths: Strengths) -> tuple[Tensor, Tensor]:
    """Factors (B, 4) of brightness, contrast, saturation and hue, and the place (B, 4) of each in the order."""
    low, high = [], []
    for operation, strength in enumerate(strengths):
        middle = 0.0 if operation == HUE else 1.0
        low.append(middle - strength)
        high.append(middle + strength)
    unit = uniforms(keys, Stream.JITTER_FACTORS, 4)
    # Column by column with plain numbers: a tensor of limits would have to be copied to the device.
    factors = torch.stack([a + unit[:, i] * (b - a) for i, (a, b) in enumerate(zip(low, high, strict=True))], dim=1)
    return factors, _ranks(uniforms(keys, Stream.JITTER_ORDER, 4))


def _ranks(values: Tensor) -> Tensor:
    """(B, 4) int64: 0 for the smallest of a row, 3 for the largest; equal values in the order they stand."""
    mine, other = values[:, :, None], values[:, None, :]
    number = torch.arange(values.shape[1], device=values.device)
    sooner = (other < mine) | ((other == mine) & (number[None, :] < number[:, None]))
    return sooner.sum(dim=2)


def jitter(images: Tensor, factors: Tensor, ranks: Tensor, strengths: Strengths) -> Tensor:
    """(B, C, H, W) uint8, the four operations applied in each picture's own order; those of strength 0 do nothing.

    Hue is the dear one. It is computed once, with up to three blends before and three after, which are idle for the
    pictures that need fewer.
    """
    grey_picture = images.shape[1] == 1
    blends = [i for i in (BRIGHTNESS, CONTRAST, SATURATION) if strengths[i] and not (grey_picture and i == SATURATION)]
    shifts_hue = strengths[HUE] > 0 and not grey_picture
    pixels = images.to(torch.float32)
    for place in range(4 if blends else 0):
        turn = ranks == place
        if shifts_hue:
            turn = turn & (ranks < ranks[:, HUE:])
        if not shifts_hue or place < 3:
            pixels = _blend_in_turn(pixels, factors, turn, blends)
    if not shifts_hue:
        return pixels.to(torch.uint8)
    pixels = shift_hue(pixels, factors[:, HUE])
    for place in range(1, 4 if blends else 1):
        pixels = _blend_in_turn(pixels, factors, (ranks == place) & (ranks > ranks[:, HUE:]), blends)
    return pixels.to(torch.uint8)


def _blend_in_turn(pixels: Tensor, factors: Tensor, turn: Tensor, blends: list[int]) -> Tensor:
    """One of the blends for each picture, or none: `turn` (B, 4) says which."""
    factor = torch.ones_like(factors[:, 0])
    for operation in blends:
        factor = torch.where(turn[:, operation], factors[:, operation], factor)
    target = pixels.new_zeros(())
    if CONTRAST in blends or SATURATION in blends:
        shades = grey(pixels)
        if CONTRAST in blends:
            target = torch.where(_spread(turn[:, CONTRAST]), mean_grey(shades), target)
        if SATURATION in blends:
            target = torch.where(_spread(turn[:, SATURATION]), shades, target)
    return blend(pixels, target, _spread(factor), _spread(1 - factor))


def _spread(values: Tensor) -> Tensor:
    """(B,) -> (B, 1, 1, 1)."""
    return values[:, None, None, None]


def blend(pixels: Tensor, target: Tensor, factor: Tensor, rest: Tensor) -> Tensor:
    """factor * pixels + rest * target, rounded down to levels, for rest = 1 - factor. Float32 in and out.

    `addcmul` rounds once where torchvision's `add(..., alpha=)` does.
    """
    return torch.addcmul(pixels * factor, target, rest).clamp(0, 255).trunc()


def grey(pixels: Tensor) -> Tensor:
    """(B, 1, H, W): the luma of float32 levels, rounded down; a grey picture is its own."""
    if pixels.shape[1] == 1:
        return pixels
    red, green, blue = pixels.split(1, dim=1)
    return torch.add(torch.add(red * 0.2989, green, alpha=0.587), blue, alpha=0.114).floor()


def mean_grey(shades: Tensor) -> Tensor:
    """(B, 1, 1, 1). Exact up to 256 x 256 pixels: sums below 2**24."""
    return shades.mean(dim=(1, 2, 3), keepdim=True)


def shift_hue(pixels: Tensor, shift: Tensor) -> Tensor:
    """Levels (B, 3, H, W) float32, turned on the colour wheel by `shift` (B,), counted in whole turns."""
    red, green, blue = (pixels * (1 / 255)).unbind(dim=1)
    value = torch.maximum(torch.maximum(red, green), blue)
    lowest = torch.minimum(torch.minimum(red, green), blue)
    spread = value - lowest
    colourless = spread == 0
    saturation = spread / torch.where(colourless, 1.0, value)
    divisor = torch.where(colourless, 1.0, spread)
    r, g, b = ((value - channel) / divisor for channel in (red, green, blue))
    sector = torch.where(value == red, b - g, torch.where(value == green, r + 2 - b, g + 4 - r))
    hue = (sector * (1 / 6) + 1).fmod(1.0)
    hue = (hue + shift[:, None, None]).remainder(1.0)
    return _from_hsv(hue, saturation, value)


def _from_hsv(hue: Tensor, saturation: Tensor, value: Tensor) -> Tensor:
    sixth = hue * 6
    sector = sixth.floor()
    within = sixth - sector
    within = saturation * within
    pale = 1 - saturation
    falling = ((1 - within) * value).clamp(0, 1)
    rising = ((within + pale) * value).clamp(0, 1)
    lowest = (pale * value).clamp(0, 1)
    sector = torch.where(sector == 6, 0, sector)
    red = _by_sector(sector, value, falling, lowest, lowest, rising, value)
    green = _by_sector(sector, rising, value, value, falling, lowest, lowest)
    blue = _by_sector(sector, lowest, lowest, rising, value, value, falling)
    # torchvision's way from 0..1 back to levels
    return (torch.stack((red, green, blue), dim=1) * (256 - 1e-3)).trunc()


def _by_sector(sector: Tensor, *values: Tensor) -> Tensor:
    """values[sector], pixel by pixel."""
    chosen = values[0]
    for number, value in enumerate(values):
        if value is not values[0]:
            chosen = torch.where(sector == number, value, chosen)
    return chosen
