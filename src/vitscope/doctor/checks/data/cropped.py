"""Pictures that are in training too, but are shown there shifted, cropped or mirrored, so that no two look the same.

What such a change leaves is the pixels themselves: the middle of a validation picture lies somewhere in the training
picture. Every window of every training picture is made one number, and those of validation are looked up among them.
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


def found_cropped(train: Tensor, val: Tensor) -> int:
    """How many of `val` (m, C, h, w) have their middle in a picture of `train` (n, C, h, w), mirrored or not."""
    height, width = train.shape[-2:]
    side = max(WINDOW_LEAST, round(WINDOW_SHARE * min(height, width)))
    if side > min(height, width) or train.shape[1:] != val.shape[1:]:
        return 0
    mean = val.mean((0, 2, 3), keepdim=True)  # where channels lie far apart, what pictures differ by would be lost
    train, val = train - mean, val - mean
    top, left = (height - side) // 2, (width - side) // 2
    middles = val[..., top : top + side, left : left + side]
    spread = float(val.std())
    middles = middles[middles.std((1, 2, 3)) > WINDOW_SPREAD * spread]  # an even middle is in many pictures
    if len(middles) == 0:
        return 0
    weights = torch.randn(side, side, generator=torch.Generator().manual_seed(0))
    grey = train.sum(1, keepdim=True)
    windows = torch.cat([F.conv2d(part, weights[None, None]).flatten() for part in grey.split(AT_ONCE)])
    numbers, order = windows.sort()
    across = width - side + 1
    per_picture = (height - side + 1) * across
    is_found = torch.zeros(len(middles), dtype=torch.bool)
    for sought in (middles, middles.flip(-1)):
        wanted = (sought.sum(1) * weights).sum((1, 2))
        for which in (~is_found).nonzero().flatten().tolist():
            limits = wanted[which] + torch.tensor([-ALIKE * spread, ALIKE * spread])
            first, last = torch.searchsorted(numbers, limits).tolist()
            for place in order[first : min(last, first + MOST_ALIKE)].tolist():
                picture, at = divmod(place, per_picture)
                y, x = divmod(at, across)
                there = train[picture, :, y : y + side, x : x + side]
                if bool(((there - sought[which]).abs() <= CLOSE * spread).all()):
                    is_found[which] = True
                    break
    return int(is_found.sum())
