"""Pictures that are in training too, but are shown there shifted, cropped or mirrored, so that no two look the same.

What such a change leaves is the pixels themselves: the middle of the picture that is looked for lies somewhere in the
training picture. Every window of every training picture is made one number, and those middles are looked up among them.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from vitscope.doctor.thresholds.data import WINDOW_LEAST, WINDOW_SHARE, WINDOW_SPREAD

CLOSE = 1e-4
"""Of the pictures' spread, by which the same pixels may differ after arithmetic in another order."""
ALIKE = 1e-3
"""The same of their numbers; what is alike by chance is compared pixel by pixel."""
MOST_ALIKE = 1000
"""Windows compared with one: more are alike only where all pictures are."""
AT_ONCE = 256


def found_cropped(train: Tensor, sought: Tensor) -> int:
    """How many of `sought` (m, C, h, w) have their middle in a picture of `train` (n, C, h, w), mirrored or not."""
    return int((times_cropped(train, sought, most=1) > 0).sum())


def times_cropped(train: Tensor, sought: Tensor, *, most: int) -> Tensor:
    """In how many pictures of `train` each has it, `most` at most. Those with an even middle, which is in many
    pictures, are left out: (at most m,)."""
    height, width = train.shape[-2:]
    side = max(WINDOW_LEAST, round(WINDOW_SHARE * min(height, width)))
    if side > min(height, width) or train.shape[1:] != sought.shape[1:]:
        return torch.zeros(0, dtype=torch.int64)
    mean = sought.mean((0, 2, 3), keepdim=True)  # where channels lie far apart, what pictures differ by would be lost
    train, sought = train - mean, sought - mean
    top, left = (height - side) // 2, (width - side) // 2
    middles = sought[..., top : top + side, left : left + side]
    spread = float(sought.std())
    middles = middles[middles.std((1, 2, 3)) > WINDOW_SPREAD * spread]
    if len(middles) == 0:
        return torch.zeros(0, dtype=torch.int64)
    weights = torch.randn(side, side, generator=torch.Generator().manual_seed(0))
    grey = train.sum(1, keepdim=True)
    windows = torch.cat([F.conv2d(part, weights[None, None]).flatten() for part in grey.split(AT_ONCE)])
    numbers, order = windows.sort()
    across = width - side + 1
    per_picture = (height - side + 1) * across
    found = [set[int]() for _ in middles]
    for turned in (middles, middles.flip(-1)):
        wanted = (turned.sum(1) * weights).sum((1, 2))
        for which, pictures in enumerate(found):
            limits = wanted[which] + torch.tensor([-ALIKE * spread, ALIKE * spread])
            first, last = torch.searchsorted(numbers, limits).tolist()
            for place in order[first : min(last, first + MOST_ALIKE)].tolist():
                if len(pictures) >= most:
                    break
                picture, at = divmod(place, per_picture)
                y, x = divmod(at, across)
                there = train[picture, :, y : y + side, x : x + side]
                if bool(((there - turned[which]).abs() <= CLOSE * spread).all()):
                    pictures.add(picture)
    return torch.tensor([len(pictures) for pictures in found])
