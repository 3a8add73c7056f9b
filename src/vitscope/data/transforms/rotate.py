"""Turning each picture of a batch about its middle by its own angle, as torchvision's RandomRotation.

B pictures, C channels, H height, W width.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from vitscope.data.draws import uniform
from vitscope.data.transforms.streams import Stream


def angles(keys: Tensor, degrees: float) -> Tensor:
    """(B,) float32, in degrees, up to `degrees` either way."""
    return uniform(keys, Stream.ROTATION, -degrees, degrees)


def rotate(images: Tensor, degrees: Tensor) -> Tensor:
    """(B, C, H, W) uint8, each picture turned counter-clockwise by its own angle (B,), bilinear, black outside."""
    height, width = images.shape[-2:]
    turn = degrees * (math.pi / 180)
    cos, sin = turn.cos()[:, None, None], turn.sin()[:, None, None]
    x = _about_middle(width, images)
    y = _about_middle(height, images)[:, None]
    # grid_sample counts from -1 to 1 over the picture
    grid = torch.stack(((cos * x - sin * y) * (2 / width), (sin * x + cos * y) * (2 / height)), dim=-1)
    pixels = images.to(torch.float32)
    pixels = torch.cat((pixels, torch.ones_like(pixels[:, :1])), dim=1)
    pixels = F.grid_sample(pixels, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
    # The share of the last channel that came from inside: torchvision fades the edge by it once more.
    return (pixels[:, :-1] * pixels[:, -1:]).round().to(torch.uint8)


def _about_middle(count: int, like: Tensor) -> Tensor:
    return torch.arange(count, device=like.device, dtype=torch.float32) - (count - 1) / 2
