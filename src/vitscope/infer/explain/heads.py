"""How far each head looks, and how widely it spreads its look.

Mean attention distance as in Dosovitskiy et al. 2021 (arXiv 2010.11929, appendix D.7); T tokens, N of them patches.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from vitscope.models.config import ViTConfig, pair


@dataclass(frozen=True)
class LayerHeads:
    """One number for each head of a layer."""

    layer: int
    distance_px: tuple[float, ...]
    """From the middle of a patch to the middles of those it looks at, weighted by how much, in pixels the model sees; a
    mean over patches. What goes to tokens without a place does not count."""
    entropy_bits: tuple[float, ...]
    """Of a token's look, a mean over tokens: 0 is a look at one token, log2(T) one at all alike."""
    prefix_share: tuple[float, ...]
    """Of the patches' attention, what goes to class, distillation and register tokens."""


def heads_of(layer: int, weights: Tensor, config: ViTConfig) -> LayerHeads:
    """From a layer's weights (heads, T, T)."""
    between = patch_distances(config).to(weights.device)
    patches = weights[:, config.num_prefix_tokens :, config.num_prefix_tokens :]
    kept = patches.sum(-1)
    far = (patches * between).sum(-1) / kept.clamp(min=torch.finfo(kept.dtype).tiny)
    entropy = torch.special.entr(weights).sum(-1).mean(-1) / math.log(2)
    return LayerHeads(
        layer,
        tuple(far.mean(-1).tolist()),
        tuple(entropy.tolist()),
        tuple((1 - kept.mean(-1)).clamp(min=0).tolist()),
    )


def patch_distances(config: ViTConfig) -> Tensor:
    """(N, N) in pixels, between the middles of patches."""
    (down, across), (height, width) = config.grid_size, pair(config.patch_size)
    places = torch.cartesian_prod(torch.arange(down) * float(height), torch.arange(across) * float(width))
    return torch.cdist(places, places, compute_mode="donot_use_mm_for_euclid_dist")


def even_distance(config: ViTConfig) -> float:
    """The mean attention distance of a head that looks at all patches alike."""
    return patch_distances(config).mean().item()
