"""Residual networks and the blocks they are built from (He et al. 2016, arXiv 1512.03385).

B batch, C channels, h w picture of the stage. Keys as in timm and torchvision.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from vitscope.models.config import ResNetConfig
from vitscope.models.init import init_convolutional
from vitscope.models.model import VisionModel, choose_layers, make_head


class ResidualBlock(nn.Module):
    """relu(x + f(x)), f two 3x3 convolutions, `inner` channels between them (by default as many as come out).
    Where the shape changes, the shortcut is projected by a 1x1."""

    expansion = 1

    def __init__(self, in_chans: int, out_chans: int, stride: int = 1, *, inner: tuple[int, ...] | None = None) -> None:
        super().__init__()
        (width,) = inner or (out_chans,)
        self.conv1 = nn.Conv2d(in_chans, width, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, out_chans, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(out_chans)
        self.downsample = make_shortcut(in_chans, out_chans, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.downsample(x) + self.bn2(self.conv2(y)))

    @property
    def last_norm(self) -> nn.BatchNorm2d:
        return self.bn2


class Bottleneck(nn.Module):
    """relu(x + f(x)), f a 1x1 down to the `inner` channels (by default a quarter), a 3x3 (which strides), a 1x1
    up again."""

    expansion = 4

    def __init__(self, in_chans: int, out_chans: int, stride: int = 1, *, inner: tuple[int, ...] | None = None) -> None:
        super().__init__()
        first, second = inner or (out_chans // self.expansion,) * 2
        self.conv1 = nn.Conv2d(in_chans, first, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(first)
        self.conv2 = nn.Conv2d(first, second, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(second)
        self.conv3 = nn.Conv2d(second, out_chans, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(out_chans)
        self.downsample = make_shortcut(in_chans, out_chans, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        return F.relu(self.downsample(x) + self.bn3(self.conv3(y)))

    @property
    def last_norm(self) -> nn.BatchNorm2d:
        return self.bn3


class ResNet(VisionModel):
    """Images (B, C, H, W) of any size -> logits (B, num_classes)."""

    config: ResNetConfig
    head_name = "fc"
    pixel_layer = "conv1"
    any_size = True
    supports_grad_checkpointing = True

    def __init__(self, config: ResNetConfig) -> None:
        super().__init__(config)
        block = BLOCKS[config.block]
        width = config.stem_width
        if config.stem == "imagenet":
            self.conv1 = nn.Conv2d(config.in_chans, width, 7, stride=2, padding=3, bias=False)
            self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        else:
            self.conv1 = nn.Conv2d(config.in_chans, width, 3, padding=1, bias=False)
            self.maxpool = nn.Identity()
        self.bn1 = nn.BatchNorm2d(width)
        in_chans, inner = width, zip(*[iter(config.block_widths)] * config.inner_convolutions, strict=True)  # by block
        for i, depth in enumerate(config.depths):
            out_chans = width * 2**i * block.expansion
            first = block(in_chans, out_chans, 1 if i == 0 else 2, inner=next(inner))
            rest = [block(out_chans, out_chans, inner=next(inner)) for _ in range(depth - 1)]
            self.add_module(f"layer{i + 1}", nn.Sequential(first, *rest))
            in_chans = out_chans
        self.num_features = in_chans
        self.head_drop = nn.Dropout(config.head_drop_rate)

        init_convolutional(self)
        if config.zero_init_last:
            for module in self.modules():
                if isinstance(module, ResidualBlock | Bottleneck):
                    nn.init.zeros_(module.last_norm.weight)
        self.fc = make_head(self.num_features, config.num_classes)

    def forward_features(self, images: Tensor) -> Tensor:
        """The last stage: (B, C, h, w)."""
        self.check_images(images)
        x = self._stem(images)
        for stage in self.stages:
            x = self._run(stage, x)
        return x

    def forward_head(self, features: Tensor, *, pre_logits: bool = False) -> Tensor:
        pooled = self.head_drop(features.mean(dim=(2, 3)))
        return pooled if pre_logits else self.fc(pooled)

    def forward_intermediates(self, images: Tensor, indices: int | Sequence[int] | None = None) -> dict[int, Tensor]:
        """Maps (B, C, h, w) after the chosen stages (all by default, negative counts from the end)."""
        self.check_images(images)
        chosen = choose_layers(indices, len(self.stages))
        x, found = self._stem(images), {}
        for i, stage in enumerate(self.stages[: max(chosen) + 1]):
            x = self._run(stage, x)
            if i in chosen:
                found[i] = x
        return found

    @property
    def stages(self) -> list[nn.Module]:
        return [self.get_submodule(f"layer{i + 1}") for i in range(len(self.config.depths))]

    def _stem(self, images: Tensor) -> Tensor:
        return self.maxpool(F.relu(self.bn1(self.conv1(images))))

    def _run(self, stage: nn.Module, x: Tensor) -> Tensor:
        if not (self.grad_checkpointing and self.training):
            return stage(x)
        for block in stage.children():
            x = _checkpointed(block, x)
        return x


BLOCKS: dict[str, type[ResidualBlock] | type[Bottleneck]] = {"basic": ResidualBlock, "bottleneck": Bottleneck}


def make_shortcut(in_chans: int, out_chans: int, stride: int) -> nn.Module:
    """The way round a block: nothing, or a strided 1x1 convolution where the shape changes."""
    if stride == 1 and in_chans == out_chans:
        return nn.Identity()
    projection = nn.Conv2d(in_chans, out_chans, 1, stride=stride, bias=False)
    return nn.Sequential(projection, nn.BatchNorm2d(out_chans))


def _checkpointed(block: nn.Module, x: Tensor) -> Tensor:
    if torch.compiler.is_compiling():  # a compiled block counts once by itself, and contexts cannot be traced
        return checkpoint(block, x, use_reentrant=False)  # pyright: ignore[reportReturnType]

    def contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        return nullcontext(), frozen_statistics(block)

    return checkpoint(block, x, use_reentrant=False, context_fn=contexts)  # pyright: ignore[reportReturnType]


@contextmanager
def frozen_statistics(module: nn.Module) -> Iterator[None]:
    """Recomputing a block must not count its batch twice in BatchNorm's running mean and variance."""
    norms = [m for m in module.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    kept = [(norm.momentum, norm.num_batches_tracked) for norm in norms]
    for norm in norms:
        norm.momentum, norm.num_batches_tracked = 0.0, None
    try:
        yield
    finally:
        for norm, (momentum, counted) in zip(norms, kept, strict=True):
            norm.momentum, norm.num_batches_tracked = momentum, counted
