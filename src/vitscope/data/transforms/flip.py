"""Mirroring left and right, batched: who is mirrored, and the mirrored columns that crops build in.

B pictures, C channels, H height, W width.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vitscope.data.draws import coins
from vitscope.data.transforms.streams import Stream


def random_flips(keys: Tensor) -> Tensor:
    """(B,) bool: a fair coin for each picture, as torchvision's RandomHorizontalFlip."""
    return coins(keys, Stream.FLIP, 0.5)


def alternating_flips(lasting_keys: Tensor, epoch: Tensor) -> Tensor:
    """(B,) bool: a fair coin in epoch 0, then every other epoch the other way round (Jordan 2024, airbench).

    `lasting_keys` (B,) do not depend on the epoch; `epoch` is a 0-dim tensor, so a captured graph can go on using it.
    """
    return coins(lasting_keys, Stream.FLIP, 0.5) ^ (epoch % 2 == 1)


def flip(images: Tensor, flips: Tensor) -> Tensor:
    """(B, C, H, W) with the pictures mirrored that `flips` (B,) says."""
    return torch.where(flips[:, None, None, None], images.flip(-1), images)


def columns(width: int, flips: Tensor | None, like: Tensor) -> Tensor:
    """(B or 1, W) int64: the column of the unmirrored picture that each column shows."""
    across = torch.arange(width, device=like.device)[None]
    return across if flips is None else torch.where(flips[:, None], width - 1 - across, across)
