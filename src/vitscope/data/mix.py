"""Mixup (Zhang et al. 2018, arXiv 1710.09412) and CutMix (Yun et al. 2019, arXiv 1905.04899), picture by picture.

Every picture is mixed with the one half a batch away (variations of one picture lie side by side), in a share of its
own, drawn from its own key. Shares come from a table of Beta quantiles, so that one uniform number suffices and nothing
waits for a generator. Partners come from the process's own part of the batch: with several processes they are others.

B batch, C channels, H W image, K classes.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from vitscope.data.config import AugmentConfig
from vitscope.data.draws import coins, integers
from vitscope.data.transforms.settle import settled
from vitscope.data.transforms.streams import Stream

QUANTILES = 8192


class Mixer:
    """Turns a batch with labels (B,) into a mixed batch with shares (B, K)."""

    def __init__(self, augment: AugmentConfig, num_classes: int, device: torch.device | str = "cpu") -> None:
        self.num_classes = num_classes
        self.mix_prob = augment.mix_prob
        self.cutmix_prob = augment.cutmix_prob if augment.mixup_alpha else 1.0
        if not augment.cutmix_alpha:
            self.cutmix_prob = 0.0
        self.mixup_shares = beta_quantiles(augment.mixup_alpha, device)
        self.cutmix_shares = beta_quantiles(augment.cutmix_alpha, device)

    def __call__(self, images: Tensor, labels: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        """No host sync: a picture that stays as it is, is one mixed with a share of 1."""
        away = max(1, len(images) // 2)
        others = images.roll(away, 0)
        mixed = coins(keys, Stream.MIX, self.mix_prob)
        cut = coins(keys, Stream.MIX_KIND, self.cutmix_prob)
        keep = torch.ones((), device=images.device)

        blend = settled(torch.where(mixed & ~cut, self._drawn(self.mixup_shares, keys), keep))
        height, width = images.shape[-2:]
        wanted = self._drawn(self.cutmix_shares, keys)
        box, left_over = map(settled, cut_box(wanted, keys, height, width))
        cut = settled(mixed & cut)
        box = box & cut[:, None, None]

        weight = blend[:, None, None, None]
        blended = images * weight + others * (1 - weight)
        images = torch.where(box[:, None], others, blended)
        share = torch.where(cut, left_over, blend)[:, None]
        hot = F.one_hot(labels, self.num_classes).to(torch.float32)
        return images, hot * share + hot.roll(away, 0) * (1 - share)

    def _drawn(self, shares: Tensor, keys: Tensor) -> Tensor:
        return shares[integers(keys, Stream.MIX_SHARE, len(shares))]


def cut_box(wanted: Tensor, keys: Tensor, height: int, width: int) -> tuple[Tensor, Tensor]:
    """(B, H, W) where the other picture shows, and (B,) the share that is left of the first.

    A box of the area 1 - wanted, its centre anywhere, cut off at the border; the label goes by what is really shown.
    """
    half = 0.5 * torch.sqrt(1 - wanted)
    top, bottom = _span(half, integers(keys, Stream.CUT_ROW, height), height)
    left, right = _span(half, integers(keys, Stream.CUT_COLUMN, width), width)
    rows = torch.arange(height, device=keys.device)
    columns = torch.arange(width, device=keys.device)
    inside_rows = (rows >= top[:, None]) & (rows < bottom[:, None])
    inside_columns = (columns >= left[:, None]) & (columns < right[:, None])
    area = (bottom - top) * (right - left)
    return inside_rows[:, :, None] & inside_columns[:, None, :], 1 - area.to(torch.float32) / (height * width)


def _span(half: Tensor, centre: Tensor, side: int) -> tuple[Tensor, Tensor]:
    reach = (half * side).to(torch.int64)
    return (centre - reach).clamp(min=0), (centre + reach).clamp(max=side)


def beta_quantiles(alpha: float, device: torch.device | str = "cpu") -> Tensor:
    """(QUANTILES,) of Beta(alpha, alpha), each equally likely. Without an alpha nothing is mixed: all 1."""
    if alpha == 0:
        return torch.ones(QUANTILES, device=device)
    from scipy.special import betaincinv  # only where pictures are mixed

    middle = (torch.arange(QUANTILES, dtype=torch.float64) + 0.5) / QUANTILES
    return torch.from_numpy(betaincinv(alpha, alpha, middle.numpy())).to(torch.float32).to(device)
