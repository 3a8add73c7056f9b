"""Cutting an image into patches and projecting each to a token.

B batch, C channels, H W image, h w grid, p q patch, N = h*w patches, D width.
"""

from __future__ import annotations

from torch import Tensor, nn


class PatchEmbed(nn.Module):
    """A strided convolution: (B, C, H, W) -> (B, N, D). Equal to cutting, flattening and projecting."""

    def __init__(self, patch_size: tuple[int, int], in_chans: int, embed_dim: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(in_chans, embed_dim, kernel_size=patch_size, stride=patch_size)

    def forward(self, images: Tensor) -> Tensor:
        return self.proj(images).flatten(2).transpose(1, 2)


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
