"""Settings of the networks a ViT is held against: convolutional and recurrent."""

from __future__ import annotations

from typing import ClassVar, Literal

from vitscope.core.config import config, require
from vitscope.models.requirements import (
    MOST_BLOCKS,
    Size,
    pair,
    require_count,
    require_counts,
    require_depth,
    require_image,
    require_rate,
    require_stages,
)
from vitscope.models.synonyms import VIT_SYNONYMS


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
    inner_widths: tuple[int, ...] | None = None
    """Channels inside the blocks, one number for each convolution of a block but the last; by default the stage's."""
    zero_init_last: bool = True
    """Whether each block begins as the identity (its last BatchNorm weighs 0)."""
    head_drop_rate: float = 0.0
    """Dropout before the head."""
    init: Literal["kaiming"] = "kaiming"
    """How the weights begin."""

    def __post_init__(self) -> None:
        require_image(self.img_size, self.in_chans, self.num_classes)
        require_stages(self.depths, self.stem_width, "stem_width")
        if self.inner_widths is not None:
            _require_inner(self.inner_widths, sum(self.depths) * self.inner_convolutions)
        require_rate("head_drop_rate", self.head_drop_rate)

    @property
    def inner_convolutions(self) -> int:
        """Of a block, those before the one that writes into the residual stream."""
        return 2 if self.block == "bottleneck" else 1

    @property
    def block_widths(self) -> tuple[int, ...]:
        """Channels inside the blocks, block by block; of a bottleneck two numbers."""
        if self.inner_widths is not None:
            return self.inner_widths
        blocks = ((self.stem_width * 2**i,) * (depth * self.inner_convolutions) for i, depth in enumerate(self.depths))
        return tuple(width for stage in blocks for width in stage)


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
    inner_widths: tuple[int, ...] | None = None
    """Channels between the two convolutions of each stage; by default the stage's."""
    drop_rate: float = 0.1
    """Dropout after each stage's pooling."""
    head_drop_rate: float = 0.3
    """Dropout before the head."""
    init: Literal["kaiming"] = "kaiming"
    """How the weights begin."""

    def __post_init__(self) -> None:
        require_image(self.img_size, self.in_chans, self.num_classes)
        require_counts("widths", self.widths)
        require(len(self.widths) <= MOST_BLOCKS, "widths", f"at most {MOST_BLOCKS:,} stages", len(self.widths))
        if self.inner_widths is not None:
            _require_inner(self.inner_widths, len(self.widths))
        least = 2 ** len(self.widths)
        require(min(pair(self.img_size)) >= least, "img_size", f"at least {least}, halved at each stage", self.img_size)
        for name in ("drop_rate", "head_drop_rate"):
            require_rate(name, getattr(self, name))

    @property
    def block_widths(self) -> tuple[int, ...]:
        """Channels between the two convolutions of each stage."""
        return self.widths if self.inner_widths is None else self.inner_widths


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
        require_depth("depth", self.depth)
        for name in ("drop_rate", "head_drop_rate"):
            require_rate(name, getattr(self, name))


def _require_inner(widths: tuple[int, ...], count: int) -> None:
    require(len(widths) == count, "inner_widths", f"{count} numbers, one for each inner convolution", widths)
    require_counts("inner_widths", widths)
