"""Settings of the plain ViT."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

from vitscope.core.config import config, require
from vitscope.models.requirements import (
    LARGEST,
    MOST_PAIRS,
    Size,
    nearest_divisor,
    pair,
    require_count,
    require_depth,
    require_eps,
    require_image,
    require_mlp_ratio,
    require_patches,
    require_rate,
)
from vitscope.models.synonyms import VIT_SYNONYMS, VIT_VALUE_SYNONYMS


@config
class ViTConfig:
    """A plain Vision Transformer and its options."""

    synonyms: ClassVar[dict[str, str]] = VIT_SYNONYMS
    value_synonyms: ClassVar[dict[str, str]] = VIT_VALUE_SYNONYMS
    family: ClassVar[str] = "vit"

    img_size: Size = 224
    """Height and width of the input in pixels."""
    patch_size: Size = 16
    """Height and width of a patch in pixels."""
    in_chans: int = 3
    """Channels of the input."""
    num_classes: int = 1000
    """Outputs of the head; 0 gives the pooled features."""
    embed_dim: int = 768
    """Width: numbers per token."""
    depth: int = 12
    """Number of blocks."""
    num_heads: int | tuple[int, ...] = 12
    """Attention heads, one number or one per block; in such a list 0 is a block whose attention says only its bias."""
    head_dim: int | None = None
    """Numbers per head; by default embed_dim / num_heads."""
    mlp_ratio: float = 4.0
    """Neurons of the MLP as a multiple of embed_dim."""
    mlp_dim: int | tuple[int, ...] | None = None
    """Neurons of the MLP, one number or one per block (0: the MLP says only its bias); overrides mlp_ratio."""
    mlp: Literal["mlp", "swiglu"] = "mlp"
    """Form of the MLP: plain, or gated (SwiGLU; its third matrix makes mlp_ratio 2.67 cost what plain 4 does)."""
    act: Literal["gelu", "gelu_tanh", "relu", "silu", "quick_gelu"] | None = None
    """Activation of the MLP; by default gelu, and silu for swiglu."""
    qkv_bias: bool = True
    """Whether the q, k, v projection has a bias."""
    qk_norm: bool = False
    """LayerNorm on q and k of each head."""
    norm_order: Literal["pre", "post"] = "pre"
    """LayerNorm before each branch (pre) or after each sum (post)."""
    norm_eps: float = 1e-6
    """Epsilon of every LayerNorm."""
    layer_scale: float | None = None
    """Initial value of LayerScale; nothing switches it off."""
    pool: Literal["cls", "mean", "attention"] = "cls"
    """What the head sees: the class token, the mean of the patch tokens, or a learned query's answer."""
    class_token: bool = True
    """Whether there is a class token."""
    num_registers: int = 0
    """Register tokens after the class token."""
    distilled: bool = False
    """DeiT's distillation token and its head."""
    position: Literal["learned", "sincos", "rope", "relative", "none"] = "learned"
    """How a token knows its place."""
    prefix_position: bool = True
    """Whether the learned table has rows for the prefix tokens too."""
    drop_rate: float = 0.0
    """Dropout after the positions, the attention's projection and both MLP layers."""
    attn_drop_rate: float = 0.0
    """Dropout on the attention weights."""
    drop_path_rate: float = 0.0
    """Stochastic depth of the last block; rises linearly from 0 at the first."""
    head_drop_rate: float = 0.0
    """Dropout before the head."""
    init: Literal["vit", "jax", "xavier", "mimetic"] = "vit"
    """How the weights begin."""

    def __post_init__(self) -> None:
        require_image(self.img_size, self.in_chans, self.num_classes)
        require_patches(self.img_size, self.patch_size, in_table=self.position in ("learned", "sincos"))
        require_count("embed_dim", self.embed_dim)
        require_depth("depth", self.depth)
        require_eps(self.norm_eps)
        if self.layer_scale is not None:
            require(math.isfinite(self.layer_scale), "layer_scale", "a finite number", self.layer_scale)
        require_count("num_registers", self.num_registers, least=0)
        for name in ("drop_rate", "attn_drop_rate", "drop_path_rate", "head_drop_rate"):
            require_rate(name, getattr(self, name))
        self._require_heads()
        self._require_mlp()
        self._require_tokens()

    def _require_heads(self) -> None:
        heads = self.num_heads
        if isinstance(heads, tuple):
            require(len(heads) == self.depth, "num_heads", f"{self.depth} numbers, one per block", heads)
            require(
                self.head_dim is not None or (len(set(heads)) == 1 and 0 not in heads),
                "head_dim",
                "a number, because heads per block differ" if len(set(heads)) > 1 else "a number, as 0 heads say none",
                None,
                fix="set head_dim (embed_dim / original heads)",
            )
        _require_per_block("num_heads", heads, "positive numbers")
        if self.head_dim is None:
            count = self.block_heads[0]
            require(
                self.embed_dim % count == 0,
                "num_heads",
                f"a divisor of embed_dim {self.embed_dim}",
                count,
                fix=f"nearest that divides: {nearest_divisor(self.embed_dim, count)}",
            )
        else:
            require_count("head_dim", self.head_dim)
        if self.position == "rope":
            require(
                self.dim_per_head % 4 == 0,
                "head_dim",
                "a multiple of 4, as rotary positions need",
                self.dim_per_head,
                fix="choose embed_dim / num_heads divisible by 4",
            )
        if self.position == "sincos":
            require(self.embed_dim % 4 == 0, "embed_dim", "a multiple of 4, as sin-cos positions need", self.embed_dim)

    def _require_mlp(self) -> None:
        if isinstance(self.mlp_dim, tuple):
            require(len(self.mlp_dim) == self.depth, "mlp_dim", f"{self.depth} numbers, one per block", self.mlp_dim)
        require_mlp_ratio(self.embed_dim, self.mlp_ratio)
        if self.mlp_dim is not None:
            _require_per_block("mlp_dim", self.mlp_dim, "positive integers")

    def _require_tokens(self) -> None:
        if self.position == "relative":
            require(
                self.num_patches**2 <= MOST_PAIRS,
                "img_size",
                f"at most {math.isqrt(MOST_PAIRS):,} patches, as each pair of them has its relative position",
                f"a size of {self.num_patches:,}",
            )
        if self.pool == "cls" or self.distilled:
            require(
                self.class_token,
                "class_token",
                "True for pool='cls' and for distilled models",
                False,
                fix="set class_token to True, or pool to 'mean'",
            )
        if self.distilled:
            require(self.pool == "cls", "pool", "'cls' for a distilled model", repr(self.pool))
        if self.pool == "attention":
            require(
                self.embed_dim % self.dim_per_head == 0,
                "head_dim",
                f"a divisor of embed_dim {self.embed_dim}, as attention pooling needs",
                self.dim_per_head,
            )

    @property
    def grid_size(self) -> tuple[int, int]:
        """Patches (down, across)."""
        (height, width), (down, across) = pair(self.img_size), pair(self.patch_size)
        return height // down, width // across

    @property
    def num_patches(self) -> int:
        return self.grid_size[0] * self.grid_size[1]

    @property
    def num_prefix_tokens(self) -> int:
        """Tokens before the patches: class, distillation, registers."""
        return int(self.class_token) + int(self.distilled) + self.num_registers

    @property
    def num_tokens(self) -> int:
        return self.num_prefix_tokens + self.num_patches

    @property
    def activation(self) -> str:
        """The activation that is meant where none is named."""
        return self.act or ("silu" if self.mlp == "swiglu" else "gelu")

    @property
    def dim_per_head(self) -> int:
        return self.head_dim or self.embed_dim // self.block_heads[0]

    @property
    def block_heads(self) -> tuple[int, ...]:
        """Heads of each block."""
        return self.num_heads if isinstance(self.num_heads, tuple) else (self.num_heads,) * self.depth

    @property
    def block_mlp_dims(self) -> tuple[int, ...]:
        """MLP neurons of each block."""
        if isinstance(self.mlp_dim, tuple):
            return self.mlp_dim
        return ((self.mlp_dim if self.mlp_dim is not None else int(self.embed_dim * self.mlp_ratio)),) * self.depth


def _require_per_block(name: str, given: int | tuple[int, ...], wanted: str) -> None:
    """One number is of every block, and positive: nobody who types it means a network of biases. A list may have 0s."""
    if isinstance(given, tuple):
        require(all(0 <= count <= LARGEST for count in given), name, f"{wanted}, or 0 for a bias alone", given)
    else:
        fix = (
            f"blocks without any are 0s in a list with one number per block ({name}: [3, 0, 3])" if given == 0 else None
        )
        require(0 < given <= LARGEST, name, wanted, given, fix=fix)
