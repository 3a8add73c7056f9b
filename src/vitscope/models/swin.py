"""Swin: a hierarchy of stages whose blocks attend inside shifted windows (Liu et al. 2021, arXiv 2103.14030).

B batch, h w grid of the stage, C width of the stage. Tokens stay in their picture: (B, h, w, C).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from vitscope.models.config import Size, SwinConfig, pair
from vitscope.models.init import init_transformer
from vitscope.models.layers.drop import DropPath, rising_rates
from vitscope.models.layers.mlp import Mlp
from vitscope.models.layers.patch import PatchEmbed
from vitscope.models.layers.resample import PatchMethod
from vitscope.models.layers.window import WindowAttention, cut_windows, fit_window, join_windows, shift_mask
from vitscope.models.model import VisionModel, choose_layers, make_head


class Swin(VisionModel):
    """Images (B, C, H, W) -> logits (B, num_classes)."""

    config: SwinConfig
    head_name = "head.fc"
    pixel_layer = "patch_embed.proj"
    supports_grad_checkpointing = True

    def __init__(self, config: SwinConfig) -> None:
        super().__init__(config)
        self.num_features = config.embed_dim * 2 ** (len(config.depths) - 1)
        self.patch_embed = NormedPatchEmbed(config)
        self.layers = nn.ModuleList(make_stages(config))
        self.norm = nn.LayerNorm(self.num_features, eps=config.norm_eps)
        self.head_drop = nn.Dropout(config.head_drop_rate)
        init_transformer(self, config.init)
        self.head = nn.ModuleDict({"fc": make_head(self.num_features, config.num_classes)})
        self.reset_buffers()

    def forward_features(self, images: Tensor) -> Tensor:
        """The last stage's tokens after the last norm: (B, h, w, C)."""
        self.check_images(images)
        x = self.patch_embed(images)
        for stage in self.layers:
            x = stage(x, recompute=self.grad_checkpointing and self.training)
        return self.norm(x)

    def forward_head(self, features: Tensor, *, pre_logits: bool = False) -> Tensor:
        pooled = self.head_drop(features.mean(dim=(1, 2)))
        return pooled if pre_logits else self.head["fc"](pooled)

    def forward_intermediates(self, images: Tensor, indices: int | Sequence[int] | None = None) -> dict[int, Tensor]:
        """Tokens (B, h, w, C) after the chosen stages (all by default, negative counts from the end), before
        the last norm. Stages after the last chosen one are not run."""
        self.check_images(images)
        chosen = choose_layers(indices, len(self.layers))
        x, found = self.patch_embed(images), {}
        for i, stage in enumerate(self.layers[: max(chosen) + 1]):
            x = stage(x, recompute=self.grad_checkpointing and self.training)
            if i in chosen:
                found[i] = x
        return found

    def set_input_size(
        self,
        img_size: Size,
        *,
        patch_size: Size | None = None,
        antialias: bool = True,
        patch_filter: PatchMethod = "pseudo_inverse",
    ) -> None:
        """Fit windows and shifts to the grids of another image or patch size; where a window changes, its learned
        bias is moved by plain bicubic, the only way it has."""
        super().set_input_size(img_size, patch_size=patch_size)
        self.patch_embed.proj.resize(pair(self.config.patch_size), patch_filter)
        for block, grid in self._placed_blocks():
            block.place(grid, self.config.window_size)
        self.reset_buffers()

    def reset_buffers(self) -> None:
        for block, _ in self._placed_blocks():
            block.reset_buffers(self.norm.weight.device, self.norm.weight.dtype)

    def _placed_blocks(self) -> list[tuple[SwinBlock, tuple[int, int]]]:
        """Every block with the grid of its stage."""
        placed = []
        for stage, grid in zip(self.layers, self.config.stage_grids, strict=True):
            placed += [(block, grid) for block in stage.modules() if isinstance(block, SwinBlock)]
        return placed


class NormedPatchEmbed(PatchEmbed):
    """(B, C, H, W) -> (B, h, w, C), each token normalised."""

    def __init__(self, config: SwinConfig) -> None:
        super().__init__(pair(config.patch_size), config.in_chans, config.embed_dim)
        self.norm = nn.LayerNorm(config.embed_dim, eps=config.norm_eps)

    def forward(self, images: Tensor) -> Tensor:
        p, q = self.proj.patch_size
        grid = (images.shape[2] // p, images.shape[3] // q)
        return self.norm(self.proj(images)).unflatten(1, grid)


class PatchMerging(nn.Module):
    """(B, h, w, C) -> (B, h/2, w/2, 2C): four neighbours side by side, normalised, projected."""

    def __init__(self, dim: int, norm_eps: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4 * dim, eps=norm_eps)
        self.reduction = nn.Linear(4 * dim, 2 * dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        # Neighbours go down first, then across: published weights know this order.
        four = [x[:, row::2, column::2] for column in (0, 1) for row in (0, 1)]
        return self.reduction(self.norm(torch.cat(four, dim=-1)))


class SwinBlock(nn.Module):
    """x + attn(norm(x)) inside windows, x + mlp(norm(x)) for each token."""

    attn_mask: Tensor | None

    def __init__(self, config: SwinConfig, stage: int, *, shifted: bool, drop_path: float) -> None:
        super().__init__()
        dim = config.embed_dim * 2**stage
        self.shifted = shifted
        self.grid = config.stage_grids[stage]
        window, self.shift = fit_window(self.grid, config.window_size, shifted=shifted)
        self.norm1 = nn.LayerNorm(dim, eps=config.norm_eps)
        self.attn = WindowAttention(
            dim,
            config.num_heads[stage],
            window,
            qkv_bias=config.qkv_bias,
            attn_drop=config.attn_drop_rate,
            proj_drop=config.drop_rate,
        )
        self.drop_path1 = DropPath(drop_path)
        self.norm2 = nn.LayerNorm(dim, eps=config.norm_eps)
        self.mlp = Mlp(dim, int(dim * config.mlp_ratio), drop=config.drop_rate)
        self.drop_path2 = DropPath(drop_path)
        self.register_buffer("attn_mask", None, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop_path1(self._attend(self.norm1(x)))
        return x + self.drop_path2(self.mlp(self.norm2(x)))

    def place(self, grid: tuple[int, int], window_size: int) -> None:
        """Work on another grid from now on; `reset_buffers` must follow."""
        window, self.shift = fit_window(grid, window_size, shifted=self.shifted)
        self.grid = grid
        self.attn.resize(window)

    def reset_buffers(self, device: torch.device, dtype: torch.dtype) -> None:
        mask = shift_mask(self.grid, self.attn.window, self.shift) if any(self.shift) else None
        self.attn_mask = None if mask is None else mask.to(device, dtype)
        self.attn.reset_buffers(device)

    def _attend(self, x: Tensor) -> Tensor:
        (down, across), window = self.shift, self.attn.window
        if down or across:
            x = x.roll((-down, -across), dims=(1, 2))
        x = join_windows(self.attn(cut_windows(x, window), self.attn_mask), window, self.grid)
        return x.roll((down, across), dims=(1, 2)) if down or across else x


class SwinStage(nn.Module):
    """Every stage but the first begins by merging patches; every second block is shifted."""

    def __init__(self, config: SwinConfig, stage: int, rates: list[float]) -> None:
        super().__init__()
        before = config.embed_dim * 2 ** (stage - 1) if stage > 0 else None
        self.downsample = nn.Identity() if before is None else PatchMerging(before, config.norm_eps)
        self.blocks = nn.ModuleList(
            SwinBlock(config, stage, shifted=i % 2 == 1, drop_path=rate) for i, rate in enumerate(rates)
        )

    def forward(self, x: Tensor, *, recompute: bool = False) -> Tensor:
        """`recompute`: keep no activations of the blocks for the backward pass."""
        x = self.downsample(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if recompute else block(x)  # pyright: ignore[reportAssignmentType]
        return x


def make_stages(config: SwinConfig) -> list[SwinStage]:
    """The stages of a config; stochastic depth rises over the blocks of all of them."""
    rates = iter(rising_rates(config.drop_path_rate, sum(config.depths)))
    return [SwinStage(config, stage, list(islice(rates, depth))) for stage, depth in enumerate(config.depths)]
