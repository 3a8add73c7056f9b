"""A small convolutional network: the baseline for digits. B batch, C channels, h w picture of the stage."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch.nn.functional as F
from torch import Tensor, nn

from vitscope.core.errors import InputError, expected
from vitscope.models.config import CNNConfig
from vitscope.models.init import init_convolutional
from vitscope.models.model import VisionModel, choose_layers, make_head


class CNN(VisionModel):
    """Images (B, C, H, W), of any size that can be halved by every stage -> logits (B, num_classes)."""

    config: CNNConfig
    any_size = True
    pixel_layer = "stages.0.conv1"
    # Max-pooled ReLUs of normalised maps, lifted again by the head's dropout, have a root mean square of 1.3.
    head_scale = 0.25

    def __init__(self, config: CNNConfig) -> None:
        super().__init__(config)
        steps = zip(pairwise((config.in_chans, *config.widths)), config.block_widths, strict=True)
        self.stages = nn.ModuleList(ConvStage(a, b, inner, drop=config.drop_rate) for (a, b), inner in steps)
        self.num_features = config.widths[-1]
        self.head_drop = nn.Dropout(config.head_drop_rate)
        init_convolutional(self)
        self.head = make_head(self.num_features, config.num_classes, self.head_scale)

    def forward_features(self, images: Tensor) -> Tensor:
        """The last stage: (B, C, h, w)."""
        self.check_images(images)
        x = images
        for stage in self.stages:
            x = stage(x)
        return x

    def forward_head(self, features: Tensor, *, pre_logits: bool = False) -> Tensor:
        pooled = self.head_drop(features.mean(dim=(2, 3)))
        return pooled if pre_logits else self.head(pooled)

    def forward_intermediates(self, images: Tensor, indices: int | Sequence[int] | None = None) -> dict[int, Tensor]:
        """Maps (B, C, h, w) after the chosen stages (all by default, negative counts from the end)."""
        self.check_images(images)
        chosen = choose_layers(indices, len(self.stages))
        x, found = images, {}
        for i, stage in enumerate(self.stages[: max(chosen) + 1]):
            x = stage(x)
            if i in chosen:
                found[i] = x
        return found

    def check_images(self, images: Tensor) -> None:
        super().check_images(images)
        least = 2 ** len(self.stages)
        if min(images.shape[2:]) < least:
            raise InputError(
                expected("images", f"at least {least} pixels a side", tuple(images.shape)),
                where="CNN.forward",
                fix="enlarge the images, or build the model with fewer widths",
            )


class ConvStage(nn.Module):
    """Twice 3x3 convolution, BatchNorm, ReLU; then 2x2 max pooling and dropout."""

    def __init__(self, in_chans: int, out_chans: int, inner: int, *, drop: float = 0.0) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_chans, inner, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(inner)
        self.conv2 = nn.Conv2d(inner, out_chans, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(out_chans)
        self.drop = nn.Dropout(drop)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.bn2(self.conv2(x)))
        return self.drop(F.max_pool2d(x, 2))
