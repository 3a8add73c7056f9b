"""SimMIM (Xie et al. 2022, arXiv 2111.09886): hidden patches become a token, one linear layer paints them.

B batch, C channels, H W image, h w grid, N = h*w patches, p patch, D width.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from vitscope.core.errors import InputError, expected
from vitscope.models.config import SimMIMConfig, pair
from vitscope.models.init import TOKEN_STD, init_transformer
from vitscope.models.layers.resample import resample_painted
from vitscope.models.reconstruction import MaskedModel, Reconstruction, Sides, random_noise, ranked

NO_PIXELS_EPS = 1e-5
"""Keeps the loss 0, not 0/0, when nothing is hidden."""


class SimMIM(MaskedModel):
    """Images (B, C, H, W) -> the error on hidden pixels, the picture as painted, and what was hidden."""

    config: SimMIMConfig  # pyright: ignore[reportIncompatibleMethodOverride]

    def __init__(self, config: SimMIMConfig) -> None:
        super().__init__(config)
        encoder, patch = config.encoder, pair(config.encoder.patch_size)[0]
        self.mask_token = nn.Parameter(torch.zeros(1, 1, encoder.embed_dim))
        self.decoder = nn.Sequential(
            nn.Conv2d(encoder.embed_dim, patch * patch * encoder.in_chans, kernel_size=1),
            nn.PixelShuffle(patch),
        )

        # The encoder has initialised itself; doing it again would undo mimetic positions.
        init_transformer(self.decoder, encoder.init)
        nn.init.trunc_normal_(self.mask_token, std=TOKEN_STD)

    def forward(self, images: Tensor, bool_masked_pos: Tensor | None = None) -> Reconstruction:
        """Hide the patches marked in `bool_masked_pos` (B, N) (a random share by default), paint the whole
        picture, and compare the hidden part."""
        self.check_images(images)
        mask = self.random_mask(images) if bool_masked_pos is None else bool_masked_pos
        self.check_per_patch("bool_masked_pos", mask, images)
        if mask.dtype != torch.bool:
            raise InputError(
                expected("bool_masked_pos", "a boolean tensor, True = hidden", mask.dtype),
                where="SimMIM.forward",
                fix="call .bool() on it",
            )
        mask = mask.to(images.device)
        patches = torch.where(mask[..., None], self.mask_token, self.encoder.patch_embed(images))
        tokens = self.encoder.encode(self.encoder.place(patches))
        picture = self.decoder(self.encoder.feature_map(tokens))
        return Reconstruction(self.hidden_error(images, picture, mask), picture, mask)

    def reconstruct(self, images: Tensor, bool_masked_pos: Tensor | None = None) -> Tensor:
        """The picture (B, C, H, W): visible patches as they are, hidden ones painted."""
        _, picture, mask = self(images, bool_masked_pos)
        return torch.where(self.hidden_pixels(mask), picture.to(images.dtype), images)

    def random_mask(self, images: Tensor) -> Tensor:
        """Another random share of `mask_ratio` of the patches for each image: (B, N) bool."""
        patches = self.config.encoder.num_patches
        _, rank = ranked(random_noise(images, patches))
        return rank < math.ceil(patches * self.config.mask_ratio)

    def hidden_pixels(self, mask: Tensor) -> Tensor:
        """A mask of patches (B, N) as one of pixels (B, 1, H, W)."""
        patch = pair(self.config.encoder.patch_size)[0]
        grid = mask.unflatten(1, self.config.encoder.grid_size)[:, None]
        return grid.repeat_interleave(patch, dim=2).repeat_interleave(patch, dim=3)

    def hidden_error(self, images: Tensor, picture: Tensor, mask: Tensor) -> Tensor:
        """Mean absolute error over hidden pixels and channels, in float32 whatever the model computes in."""
        hidden = self.hidden_pixels(mask)
        error = (picture.float() - images.float()).abs() * hidden
        return error.sum() / (hidden.sum() + NO_PIXELS_EPS) / images.shape[1]

    def repaint(self, old_patch: Sides, old_chans: int, patch: Sides, in_chans: int) -> None:
        layer: Any = self.decoder[0]
        rows = torch.cat([layer.weight.flatten(1), layer.bias[:, None]], dim=1).detach()  # the bias is a picture too
        picture = rows.reshape(old_chans, *old_patch, -1).permute(3, 0, 1, 2)
        rows = resample_painted(picture, patch, in_chans).permute(1, 2, 3, 0).flatten(0, 2)
        filters = rows[:, :-1, None, None].contiguous()
        layer.weight = nn.Parameter(filters, requires_grad=layer.weight.requires_grad)
        layer.bias = nn.Parameter(rows[:, -1].contiguous(), requires_grad=layer.bias.requires_grad)
        layer.out_channels = rows.shape[0]
        self.decoder[1] = nn.PixelShuffle(patch[0])
