"""Settings of the masked image models: a ViT and what paints the hidden patches."""

from __future__ import annotations

from typing import ClassVar

from vitscope.core.config import config, require
from vitscope.models.config.vit import ViTConfig
from vitscope.models.requirements import Size, pair, require_count, require_depth


def require_encoder(encoder: ViTConfig) -> None:
    require(encoder.num_classes == 0, "encoder.num_classes", "0, an encoder has no head", encoder.num_classes)
    require(not encoder.distilled, "encoder.distilled", "False, an encoder has no heads", True)
    require(encoder.pool != "attention", "encoder.pool", "'cls' or 'mean', nothing is pooled", repr(encoder.pool))


class SeenByEncoder:
    """What a masked model's config says of its pictures: whatever its encoder's says."""

    encoder: ViTConfig

    @property
    def img_size(self) -> Size:
        return self.encoder.img_size

    @property
    def patch_size(self) -> Size:
        return self.encoder.patch_size

    @property
    def in_chans(self) -> int:
        return self.encoder.in_chans

    @property
    def num_classes(self) -> int:
        return self.encoder.num_classes


@config
class MAEConfig(SeenByEncoder):
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
        require_depth("decoder_depth", self.decoder_depth)
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
class SimMIMConfig(SeenByEncoder):
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
