"""Settings of every model family. Imports neither torch nor numpy, so that the command line can read them at once."""

from __future__ import annotations

from typing import ClassVar, Literal, TypeAlias

from vitscope.core.config import config, require
from vitscope.models.requirements import (
    LARGEST,
    Size,
    nearest_divisor,
    pair,
    require_count,
    require_counts,
    require_image,
    require_mlp_ratio,
    require_patches,
    require_rate,
)
from vitscope.models.synonyms import VIT_SYNONYMS


@config
class ViTConfig:
    """A plain Vision Transformer and its options."""

    synonyms: ClassVar[dict[str, str]] = VIT_SYNONYMS
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
    """Attention heads, one number or one per block."""
    head_dim: int | None = None
    """Numbers per head; by default embed_dim / num_heads."""
    mlp_ratio: float = 4.0
    """Neurons of the MLP as a multiple of embed_dim."""
    mlp_dim: int | tuple[int, ...] | None = None
    """Neurons of the MLP, one number or one per block; overrides mlp_ratio."""
    mlp: Literal["mlp", "swiglu"] = "mlp"
    """Form of the MLP: plain, or gated (SwiGLU)."""
    act: Literal["gelu", "gelu_tanh", "relu", "silu", "quick_gelu"] = "gelu"
    """Activation of the MLP."""
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
        require_patches(self.img_size, self.patch_size)
        require_count("embed_dim", self.embed_dim)
        require_count("depth", self.depth)
        require(self.norm_eps > 0, "norm_eps", "a positive number", self.norm_eps)
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
                self.head_dim is not None or len(set(heads)) == 1,
                "head_dim",
                "a number, because heads per block differ",
                None,
                fix="set head_dim (embed_dim / original heads)",
            )
        require(all(0 < count <= LARGEST for count in self.block_heads), "num_heads", "positive numbers", heads)
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
        require(all(0 < m <= LARGEST for m in self.block_mlp_dims), "mlp_dim", "positive integers", self.mlp_dim)

    def _require_tokens(self) -> None:
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
        require_patches(self.img_size, self.patch_size)
        require_count("embed_dim", self.embed_dim)
        require_counts("depths", self.depths)
        require_count("window_size", self.window_size)
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

    @property
    def stage_grids(self) -> list[tuple[int, int]]:
        """Tokens (down, across) of each stage."""
        (height, width), (p, q) = pair(self.img_size), pair(self.patch_size)
        return [(height // p // 2**stage, width // q // 2**stage) for stage in range(len(self.depths))]


@config
class ResNetConfig:
    """A residual network (He et al. 2016, arXiv 1512.03385)."""

    synonyms: ClassVar[dict[str, str]] = VIT_SYNONYMS
    family: ClassVar[str] = "resnet"

    img_size: Size = 224
    """Height and width the network is counted and exported at; it accepts any."""
    in_chans: int = 3
    """Channels of the input."""
    num_classes: int = 1000
    """Outputs of the head; 0 gives the pooled features."""
    block: Literal["basic", "bottleneck"] = "basic"
    """Two 3x3 convolutions, or 1x1, 3x3, 1x1 with four times the channels at the end."""
    depths: tuple[int, ...] = (2, 2, 2, 2)
    """Blocks of each stage."""
    stem: Literal["imagenet", "cifar"] = "imagenet"
    """7x7 with stride 2 and max pooling, or one 3x3 that keeps the size."""
    stem_width: int = 64
    """Channels of the first stage; doubles with each stage."""
    zero_init_last: bool = True
    """Whether each block begins as the identity (its last BatchNorm weighs 0)."""
    head_drop_rate: float = 0.0
    """Dropout before the head."""
    init: Literal["kaiming"] = "kaiming"
    """How the weights begin."""

    def __post_init__(self) -> None:
        require_image(self.img_size, self.in_chans, self.num_classes)
        require_counts("depths", self.depths)
        require_count("stem_width", self.stem_width)
        require_rate("head_drop_rate", self.head_drop_rate)


@config
class CNNConfig:
    """A small convolutional network for digits: the baseline every ViT must beat."""

    synonyms: ClassVar[dict[str, str]] = VIT_SYNONYMS
    family: ClassVar[str] = "cnn"

    img_size: Size = 28
    """Height and width the network is counted and exported at; it accepts any that its poolings allow."""
    in_chans: int = 1
    """Channels of the input."""
    num_classes: int = 10
    """Outputs of the head; 0 gives the pooled features."""
    widths: tuple[int, ...] = (32, 64, 128)
    """Channels of each stage; each stage has two convolutions and halves the image."""
    drop_rate: float = 0.1
    """Dropout after each stage's pooling."""
    head_drop_rate: float = 0.3
    """Dropout before the head."""
    init: Literal["kaiming"] = "kaiming"
    """How the weights begin."""

    def __post_init__(self) -> None:
        require_image(self.img_size, self.in_chans, self.num_classes)
        require_counts("widths", self.widths)
        least = 2 ** len(self.widths)
        require(min(pair(self.img_size)) >= least, "img_size", f"at least {least}, halved at each stage", self.img_size)
        for name in ("drop_rate", "head_drop_rate"):
            require_rate(name, getattr(self, name))


@config
class LSTMConfig:
    """A recurrent network that reads an image row by row."""

    synonyms: ClassVar[dict[str, str]] = VIT_SYNONYMS
    family: ClassVar[str] = "lstm"

    img_size: Size = 28
    """Height (steps) and width (numbers per step) of the input."""
    in_chans: int = 1
    """Channels of the input; a row's channels are read together."""
    num_classes: int = 10
    """Outputs of the head; 0 gives the last state."""
    embed_dim: int = 128
    """Width of the hidden state."""
    depth: int = 2
    """Stacked layers."""
    bidirectional: bool = False
    """Whether rows are read upwards too."""
    drop_rate: float = 0.2
    """Dropout between the layers."""
    head_drop_rate: float = 0.0
    """Dropout before the head."""

    def __post_init__(self) -> None:
        require_image(self.img_size, self.in_chans, self.num_classes)
        require_count("embed_dim", self.embed_dim)
        require_count("depth", self.depth)
        for name in ("drop_rate", "head_drop_rate"):
            require_rate(name, getattr(self, name))


def require_encoder(encoder: ViTConfig) -> None:
    require(encoder.num_classes == 0, "encoder.num_classes", "0, an encoder has no head", encoder.num_classes)
    require(not encoder.distilled, "encoder.distilled", "False, an encoder has no heads", True)
    require(encoder.pool != "attention", "encoder.pool", "'cls' or 'mean', nothing is pooled", repr(encoder.pool))


@config
class MAEConfig:
    """A masked autoencoder: a ViT that sees a quarter of the patches and a light decoder that paints the rest."""

    synonyms: ClassVar[dict[str, str]] = {
        "norm_pix_loss": "normalize_pixels",
        "decoder_hidden_size": "decoder_embed_dim",
    }
    family: ClassVar[str] = "mae"

    encoder: ViTConfig = ViTConfig(num_classes=0, position="sincos", init="xavier")
    """The ViT that is trained to see."""
    decoder_embed_dim: int = 512
    """Width of the decoder."""
    decoder_depth: int = 8
    """Blocks of the decoder."""
    decoder_num_heads: int = 16
    """Attention heads of the decoder."""
    mask_ratio: float = 0.75
    """Share of the patches the encoder does not see."""
    normalize_pixels: bool = True
    """Whether each target patch is brought to mean 0 and variance 1."""

    def __post_init__(self) -> None:
        require_encoder(self.encoder)
        require(
            self.encoder.position in ("sincos", "learned"),
            "encoder.position",
            "'sincos' or 'learned', which survive dropping patches",
            repr(self.encoder.position),
        )
        require_count("decoder_depth", self.decoder_depth)
        require_count("decoder_embed_dim", self.decoder_embed_dim)
        require(
            self.decoder_num_heads > 0 and self.decoder_embed_dim % self.decoder_num_heads == 0,
            "decoder_num_heads",
            f"a divisor of decoder_embed_dim {self.decoder_embed_dim}",
            self.decoder_num_heads,
        )
        require(self.decoder_embed_dim % 4 == 0, "decoder_embed_dim", "a multiple of 4", self.decoder_embed_dim)
        require(0 < self.mask_ratio < 1, "mask_ratio", "a share between 0 and 1", self.mask_ratio)
        patches = self.encoder.num_patches
        require(
            0 < self.num_visible < patches,
            "mask_ratio",
            f"a share that hides some and leaves some of {patches} patches",
            self.mask_ratio,
            fix="use smaller patches, a larger image, or another mask_ratio",
        )

    @property
    def num_visible(self) -> int:
        """Patches the encoder sees."""
        return int(self.encoder.num_patches * (1 - self.mask_ratio))


@config
class SimMIMConfig:
    """A ViT that paints masked patches through one linear layer (Xie et al. 2022, arXiv 2111.09886)."""

    synonyms: ClassVar[dict[str, str]] = {}
    family: ClassVar[str] = "simmim"

    encoder: ViTConfig = ViTConfig(num_classes=0)
    """The ViT that is trained to see."""
    mask_ratio: float = 0.6
    """Share of the patches hidden when no mask is given."""

    def __post_init__(self) -> None:
        require_encoder(self.encoder)
        sides = pair(self.encoder.patch_size)
        require(sides[0] == sides[1], "encoder.patch_size", "a square patch, as pixel shuffle needs", sides)
        require(0 < self.mask_ratio < 1, "mask_ratio", "a share between 0 and 1", self.mask_ratio)


ModelConfig: TypeAlias = ViTConfig | SwinConfig | ResNetConfig | CNNConfig | LSTMConfig | MAEConfig | SimMIMConfig


@config
class Wishes:
    """What a model is wanted for: the question `advise` answers."""

    images: int | None = None
    """How many pictures you can train on."""
    img_size: int = 32
    """Side of your pictures in pixels."""
    memory_gb: float | None = None
    """Memory of the GPU (or machine) in GB."""
    wish: Literal["balance", "speed", "accuracy", "memory", "trial"] = "balance"
    """What matters most."""

    def __post_init__(self) -> None:
        require(self.images is None or self.images > 0, "images", "a positive number", self.images)
        require(self.img_size >= 8, "img_size", "at least 8 pixels", self.img_size)
        require(
            self.memory_gb is None or 0 < self.memory_gb < 1e9,
            "memory_gb",
            "a positive number below 1e9",
            self.memory_gb,
        )
