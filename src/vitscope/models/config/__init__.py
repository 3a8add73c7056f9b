"""Settings of every model family. Imports neither torch nor numpy, so that the command line can read them at once."""

from __future__ import annotations

from typing import TypeAlias

from vitscope.models.config.baselines import CNNConfig, LSTMConfig, ResNetConfig
from vitscope.models.config.masked import MAEConfig, SimMIMConfig
from vitscope.models.config.swin import SwinConfig
from vitscope.models.config.vit import ViTConfig
from vitscope.models.config.wishes import Wishes
from vitscope.models.requirements import Size, pair

ModelConfig: TypeAlias = ViTConfig | SwinConfig | ResNetConfig | CNNConfig | LSTMConfig | MAEConfig | SimMIMConfig

__all__ = [
    "CNNConfig",
    "LSTMConfig",
    "MAEConfig",
    "ModelConfig",
    "ResNetConfig",
    "SimMIMConfig",
    "Size",
    "SwinConfig",
    "ViTConfig",
    "Wishes",
    "pair",
]
