"""Convolutional networks small enough for milliseconds, and every unit's entries by slices written out."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from vitscope.models.build import build_model
from vitscope.models.config import CNNConfig, ResNetConfig
from vitscope.models.model import VisionModel

RESNET: dict[str, Any] = {"img_size": 8, "in_chans": 1, "num_classes": 4, "stem": "cifar", "stem_width": 6}
CONFIGS: dict[str, CNNConfig | ResNetConfig] = {
    "basic": ResNetConfig(**RESNET, depths=(2, 1)),
    "bottleneck": ResNetConfig(**RESNET, depths=(2, 1), block="bottleneck"),
    "cnn": CNNConfig(img_size=8, num_classes=4, widths=(6, 10), drop_rate=0.0, head_drop_rate=0.0),
    "unlike": ResNetConfig(**RESNET, depths=(1, 1), block="bottleneck", inner_widths=(3, 5, 7, 4)),
    "unlike_cnn": CNNConfig(
        img_size=8, num_classes=4, widths=(6, 9), inner_widths=(5, 7), drop_rate=0.0, head_drop_rate=0.0
    ),
}

# Of each group: the convolution that makes the channels, its norm, and the layer that reads them.
ROADS: dict[str, list[tuple[str, str, str]]] = {
    "basic": [(f"{b}.conv1", f"{b}.bn1", f"{b}.conv2") for b in ("layer1.0", "layer1.1", "layer2.0")],
    "bottleneck": [
        (f"{b}.conv{n}", f"{b}.bn{n}", f"{b}.conv{n + 1}") for b in ("layer1.0", "layer1.1", "layer2.0") for n in (1, 2)
    ],
    "unlike": [(f"{b}.conv{n}", f"{b}.bn{n}", f"{b}.conv{n + 1}") for b in ("layer1.0", "layer2.0") for n in (1, 2)],
    "cnn": [
        ("stages.0.conv1", "stages.0.bn1", "stages.0.conv2"),
        ("stages.0.conv2", "stages.0.bn2", "stages.1.conv1"),
        ("stages.1.conv1", "stages.1.bn1", "stages.1.conv2"),
        ("stages.1.conv2", "stages.1.bn2", "head"),
    ],
}
ROADS["unlike_cnn"] = ROADS["cnn"]


def convolutional(name: str, *, seed: int = 0) -> VisionModel:
    """In eval mode, with weights and running statistics large enough that every channel matters."""
    torch.manual_seed(seed)
    model = build_model(CONFIGS[name]).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
        for buffer_name, buffer in model.named_buffers():
            if buffer_name.endswith("running_mean"):
                buffer.normal_(0, 0.3)
            elif buffer_name.endswith("running_var"):
                buffer.uniform_(0.5, 2.0)
    return model


def entries(name: str, tensors: dict[str, Tensor], group: int, unit: int) -> list[Tensor]:
    """All entries of one channel: views."""
    filters, norm, reader = ROADS[name][group]
    return [
        tensors[f"{filters}.weight"][unit],
        tensors[f"{norm}.weight"][unit : unit + 1],
        tensors[f"{norm}.bias"][unit : unit + 1],
        tensors[f"{reader}.weight"][:, unit],
    ]
