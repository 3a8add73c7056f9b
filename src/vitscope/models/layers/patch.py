"""Cutting an image into patches and projecting each to a token.

B batch, C channels, H W image, h w grid, p q patch, N = h*w patches, D width.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class PatchEmbed(nn.Module):
    """Images to patch tokens: (B, C, H, W) -> (B, N, D)."""

    def __init__(self, patch_size: tuple[int, int], in_chans: int, embed_dim: int) -> None:
        super().__init__()
        self.proj = PatchFilter(in_chans, embed_dim, kernel_size=patch_size, stride=patch_size)

    def forward(self, images: Tensor) -> Tensor:
        return self.proj(images)


class PatchFilter(nn.Conv2d):
    """A convolution whose stride is its size, computed as what it is: cut, flatten, project, in one matrix product.

    (B, C, H, W) -> (B, N, D). The weight keeps the convolution's shape (D, C, p, q). Forward and backward together
    take a quarter of the convolution's time on a GPU for ViT-B/16 (bench/patch_embed.py).
    """

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 (the name nn.Conv2d gives it)
        p, q = self.kernel_size
        return F.linear(cut_patches(input, (p, q)), self.weight.flatten(1), self.bias)


def cut_patches(images: Tensor, patch_size: tuple[int, int]) -> Tensor:
    """(B, C, H, W) -> (B, N, C*p*q), patches in reading order, each flattened as the convolution's filter is."""
    b, c, height, width = images.shape
    p, q = patch_size
    grid = images.reshape(b, c, height // p, p, width // q, q)
    return grid.permute(0, 2, 4, 1, 3, 5).reshape(b, -1, c * p * q)


def join_patches(patches: Tensor, patch_size: tuple[int, int], grid_size: tuple[int, int]) -> Tensor:
    """The inverse of `cut_patches`: (B, N, C*p*q) -> (B, C, H, W)."""
    b = patches.shape[0]
    (p, q), (h, w) = patch_size, grid_size
    grid = patches.reshape(b, h, w, -1, p, q)
    return grid.permute(0, 3, 1, 4, 2, 5).reshape(b, -1, h * p, w * q)
