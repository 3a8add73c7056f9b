"""Masked autoencoder (He et al. 2022, arXiv 2111.06377): the encoder sees few patches, a decoder paints all.

B batch, C channels, H W image, N patches, V of them visible, P prefix tokens, D width, p q patch.
A patch is flattened as (p, q, C), as in the authors' code, so that their `decoder_pred` means the same here.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from vitscope.models.config import MAEConfig, ViTConfig, pair
from vitscope.models.init import TOKEN_STD, init_transformer
from vitscope.models.layers.position import sincos_2d
from vitscope.models.layers.resample import resample_painted
from vitscope.models.reconstruction import (
    MaskedModel,
    Reconstruction,
    Sides,
    cut_pixels,
    join_pixels,
    random_noise,
    ranked,
)
from vitscope.models.vit import make_blocks

VARIANCE_EPS = 1e-6
"""Keeps a patch of one colour finite when targets are normalised."""


class MAE(MaskedModel):
    """Images (B, C, H, W) -> the error on hidden patches, every patch as painted, and what was hidden."""

    config: MAEConfig  # pyright: ignore[reportIncompatibleMethodOverride]
    decoder_sincos: Tensor

    def __init__(self, config: MAEConfig) -> None:
        super().__init__(config)
        decoder = decoder_config(config)
        pixels = pair(decoder.patch_size)[0] * pair(decoder.patch_size)[1] * decoder.in_chans

        self.decoder_embed = nn.Linear(config.encoder.embed_dim, decoder.embed_dim)
        self.mask_token = nn.Parameter(torch.zeros(1, 1, decoder.embed_dim))
        self.decoder_blocks = nn.ModuleList(make_blocks(decoder))
        self.decoder_norm = nn.LayerNorm(decoder.embed_dim, eps=decoder.norm_eps)
        self.decoder_pred = nn.Linear(decoder.embed_dim, pixels)

        # The encoder has initialised itself; doing it again would undo mimetic positions.
        for part in (self.decoder_embed, self.decoder_blocks, self.decoder_norm, self.decoder_pred):
            init_transformer(part, decoder.init)
        nn.init.trunc_normal_(self.mask_token, std=TOKEN_STD)
        self.reset_buffers()

    def forward(self, images: Tensor, *, noise: Tensor | None = None) -> Reconstruction:
        """Hide the patches with the highest `noise` (B, N) (drawn anew by default), paint all from the rest,
        and compare the hidden ones."""
        self.check_images(images)
        if noise is None:
            noise = random_noise(images, self.config.encoder.num_patches)
        self.check_per_patch("noise", noise, images)
        num_visible = self.config.num_visible
        order, rank = ranked(noise.to(images.device))
        prediction = self.decode(self.encode_visible(images, order[:, :num_visible]), rank)
        mask = rank >= num_visible
        return Reconstruction(self.hidden_error(images, prediction, mask), prediction, mask)

    def reconstruct(self, images: Tensor, noise: Tensor | None = None) -> Tensor:
        """The picture (B, C, H, W): visible patches as they are, hidden ones painted.

        Where targets are normalised, the model never learns a patch's mean and spread: they are those of the
        true patch.
        """
        _, painted, mask = self(images, noise=noise)
        patch_size, grid_size = pair(self.config.encoder.patch_size), self.config.encoder.grid_size
        truth = cut_pixels(images, patch_size)
        if self.config.normalize_pixels:
            mean, spread = patch_statistics(truth)
            painted = painted * spread + mean
        patches = torch.where(mask[..., None], painted.to(truth.dtype), truth)
        return join_pixels(patches, patch_size, grid_size)

    def encode_visible(self, images: Tensor, visible: Tensor) -> Tensor:
        """The encoder's tokens of the patches numbered in `visible` (B, V): (B, P + V, D)."""
        tokens = self.encoder.place(self.encoder.patch_embed(images))
        prefix = self.config.encoder.num_prefix_tokens
        return self.encoder.encode(torch.cat([tokens[:, :prefix], take(tokens[:, prefix:], visible)], dim=1))

    def decode(self, tokens: Tensor, rank: Tensor) -> Tensor:
        """Encoded tokens (B, P + V, D), mask tokens for the rest, all back in their places -> (B, N, p*q*C).

        `rank` (B, N) tells each place which token it gets: the visible ones come first, then the hidden.
        """
        tokens = self.decoder_embed(tokens)
        num_prefix = self.config.encoder.num_prefix_tokens
        prefix, visible = tokens[:, :num_prefix], tokens[:, num_prefix:]
        hidden = self.mask_token.expand(rank.shape[0], rank.shape[1] - visible.shape[1], -1)
        patches = take(torch.cat([visible, hidden], dim=1), rank) + self.decoder_sincos
        tokens = torch.cat([prefix, patches], dim=1)
        for block in self.decoder_blocks:
            if self.grad_checkpointing and self.training:
                tokens = checkpoint(block, tokens, use_reentrant=False)  # pyright: ignore[reportAssignmentType]
            else:
                tokens = block(tokens)
        return self.decoder_pred(self.decoder_norm(tokens)[:, num_prefix:])

    def hidden_error(self, images: Tensor, prediction: Tensor, mask: Tensor) -> Tensor:
        """Mean squared error over the pixels of hidden patches, in float32 whatever the model computes in."""
        target = cut_pixels(images, pair(self.config.encoder.patch_size)).float()
        if self.config.normalize_pixels:
            mean, spread = patch_statistics(target)
            target = (target - mean) / spread
        error = (prediction.float() - target).square().mean(dim=-1)
        return (error * mask).sum() / mask.sum()

    def repaint(self, old_patch: Sides, old_chans: int, patch: Sides, in_chans: int) -> None:
        layer = self.decoder_pred
        rows = torch.cat([layer.weight, layer.bias[:, None]], dim=1).detach()  # the bias is a picture too
        picture = rows.reshape(*old_patch, old_chans, -1).permute(3, 2, 0, 1)
        rows = resample_painted(picture, patch, in_chans).permute(2, 3, 1, 0).flatten(0, 2)
        layer.weight = nn.Parameter(rows[:, :-1].contiguous(), requires_grad=layer.weight.requires_grad)
        layer.bias = nn.Parameter(rows[:, -1].contiguous(), requires_grad=layer.bias.requires_grad)
        layer.out_features = rows.shape[0]

    def reset_buffers(self) -> None:
        super().reset_buffers()
        weight = self.decoder_norm.weight
        table = sincos_2d(self.config.encoder.grid_size, self.config.decoder_embed_dim)[None]
        self.register_buffer("decoder_sincos", table.to(weight.device, weight.dtype), persistent=False)


def decoder_config(config: MAEConfig) -> ViTConfig:
    """The decoder as a plain ViT without dropout. Activation, epsilon, bias, MLP ratio and initialisation are
    the encoder's; its `mlp_dim`, if any, counts for the encoder alone."""
    encoder = config.encoder
    return ViTConfig(
        img_size=encoder.img_size,
        patch_size=encoder.patch_size,
        in_chans=encoder.in_chans,
        num_classes=0,
        embed_dim=config.decoder_embed_dim,
        depth=config.decoder_depth,
        num_heads=config.decoder_num_heads,
        mlp_ratio=encoder.mlp_ratio,
        act=encoder.act,
        qkv_bias=encoder.qkv_bias,
        norm_eps=encoder.norm_eps,
        position="sincos",
        init=encoder.init,
    )


def patch_statistics(patches: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and spread of the pixels of each patch: both (B, N, 1), float32."""
    variance, mean = torch.var_mean(patches.float(), dim=-1, keepdim=True)
    return mean, (variance + VARIANCE_EPS).sqrt()


def take(tokens: Tensor, places: Tensor) -> Tensor:
    """Tokens (B, N, D) at `places` (B, M), each image its own: (B, M, D)."""
    return tokens.gather(1, places[..., None].expand(-1, -1, tokens.shape[2]))
