"""From a config to its network. Loads nothing: `vitscope.create_model`, one floor up, may."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from vitscope.models.config import (
    CNNConfig,
    LSTMConfig,
    MAEConfig,
    ModelConfig,
    ResNetConfig,
    SimMIMConfig,
    SwinConfig,
    ViTConfig,
)

if TYPE_CHECKING:
    from vitscope.models.model import VisionModel

# Only the family asked for is imported.
NETWORKS: dict[type, tuple[str, str]] = {
    ViTConfig: ("vitscope.models.vit", "ViT"),
    SwinConfig: ("vitscope.models.swin", "Swin"),
    ResNetConfig: ("vitscope.models.resnet", "ResNet"),
    CNNConfig: ("vitscope.models.cnn", "CNN"),
    LSTMConfig: ("vitscope.models.lstm", "LSTM"),
    MAEConfig: ("vitscope.models.mae", "MAE"),
    SimMIMConfig: ("vitscope.models.simmim", "SimMIM"),
}

CONFIGS: dict[str, type] = {cls.family: cls for cls in NETWORKS}  # pyright: ignore[reportAttributeAccessIssue]
"""Family name -> config class, as saved files name them."""


def build_model(config: ModelConfig) -> VisionModel:
    """A freshly initialised network with the settings of `config`."""
    module, name = NETWORKS[type(config)]
    return getattr(import_module(module), name)(config)
