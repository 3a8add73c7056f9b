"""Settings of Swin."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

from vitscope.core.config import config, require
from vitscope.models.requirements import (
    MOST_PAIRS,
    Size,
    pair,
    require_count,
    require_eps,
    require_image,
    require_mlp_ratio,
    require_patches,
    require_rate,
    require_stages,
)
from vitscope.models.synonyms import VIT_SYNONYMS


@config
class SwinConfig:
    """A hierarchical transformer with shifted windows (Liu et al. 2021, arXiv 2103.14030)."""

    synonyms: ClassVar[dict[str, str]] = {**VIT_SYNONYMS, "depth": "depths", "num_layers": "depths"}
    family: ClassVar[str] = "swin"

    img_size: Size = 224
    """Height and width of the input in pixels."""
    patch_size: Size = 4
    """Height and width of a patch in pixels."""
    in_chans: int = 3
    """Channels of the input."""
    num_classes: int = 1000
    """Outputs of the head; 0 gives the pooled features."""
    embed_dim: int = 96
    """Width of the first stage; doubles with each stage."""
    depths: tuple[int, ...] = (2, 2, 6, 2)
    """Blocks of each stage."""
    num_heads: tuple[int, ...] = (3, 6, 12, 24)
    """Attention heads of each stage."""
    window_size: int = 7
    """Side of an attention window in tokens."""
    mlp_ratio: float = 4.0
    """Neurons of the MLP as a multiple of the stage's width."""
    qkv_bias: bool = True
    """Whether the q, k, v projection has a bias."""
    norm_eps: float = 1e-5
    """Epsilon of every LayerNorm."""
    drop_rate: float = 0.0
    """Dropout after the attention's projection and both MLP layers."""
    attn_drop_rate: float = 0.0
    """Dropout on the attention weights."""
    drop_path_rate: float = 0.1
    """Stochastic depth of the last block; rises linearly from 0 at the first."""
    head_drop_rate: float = 0.0
    """Dropout before the head."""
    init: Literal["vit", "jax", "xavier"] = "vit"
    """How the weights begin."""

    def __post_init__(self) -> None:
        require_image(self.img_size, self.in_chans, self.num_classes)
        require_patches(self.img_size, self.patch_size, in_table=False)
        require_stages(self.depths, self.embed_dim, "embed_dim")
        require_count("window_size", self.window_size)
        require_eps(self.norm_eps)
        require_mlp_ratio(self.embed_dim, self.mlp_ratio)
        for name in ("drop_rate", "attn_drop_rate", "drop_path_rate", "head_drop_rate"):
            require_rate(name, getattr(self, name))
        require(
            len(self.num_heads) == len(self.depths),
            "num_heads",
            f"{len(self.depths)} numbers, one per stage",
            self.num_heads,
        )
        for stage, heads in enumerate(self.num_heads):
            width = self.embed_dim * 2**stage
            require(heads > 0 and width % heads == 0, "num_heads", f"divisors of the stage's width {width}", heads)
        step = [patch * 2 ** (len(self.depths) - 1) for patch in pair(self.patch_size)]
        for side, unit in zip(pair(self.img_size), step, strict=True):
            require(side % unit == 0, "img_size", f"a multiple of {unit} (patch_size, halved at each stage)", side)
        for grid in self.stage_grids:
            for side in grid:
                require(
                    side <= self.window_size or side % self.window_size == 0,
                    "img_size",
                    f"stages whose sides are multiples of window_size {self.window_size} or smaller than it",
                    f"a stage of {grid[0]} x {grid[1]} tokens",
                    fix=f"use an image of {step[0] * self.window_size} pixels, or another window_size",
                )
            pairs = math.prod(side * min(side, self.window_size) for side in grid)
            require(
                pairs <= MOST_PAIRS,
                "window_size",
                f"windows with at most {MOST_PAIRS:,} pairs of tokens in all",
                f"{self.window_size}, which makes {pairs:,}",
            )

    @property
    def stage_grids(self) -> list[tuple[int, int]]:
        """Tokens (down, across) of each stage."""
        (height, width), (p, q) = pair(self.img_size), pair(self.patch_size)
        return [(height // p // 2**stage, width // q // 2**stage) for stage in range(len(self.depths))]
