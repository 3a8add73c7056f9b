"""Everything a model costs, in one object."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from vitscope.models.accounting.compute import count_macs
from vitscope.models.accounting.memory import TrainingMemory, training_memory
from vitscope.models.accounting.parts import Part, list_parts
from vitscope.models.build import build_model
from vitscope.models.config import ModelConfig, ViTConfig, pair


@dataclass(frozen=True)
class Account:
    """Counted on a network built on the meta device: it takes no memory and no time, whatever its size."""

    config: ModelConfig
    batch: int = 1

    @cached_property
    def network(self) -> Any:
        with torch.device("meta"):
            return build_model(self.config)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        image: Any = getattr(self.config, "encoder", self.config)
        return (image.in_chans, *pair(image.img_size))

    @cached_property
    def parts(self) -> list[Part]:
        return list_parts(self.network, self._macs)

    @cached_property
    def parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.network.parameters())

    @cached_property
    def macs(self) -> int:
        """Multiply-adds for one image, forward."""
        return sum(self._macs.values())

    @property
    def bytes_fp32(self) -> int:
        return self.parameters * 4

    @property
    def bytes_bf16(self) -> int:
        return self.parameters * 2

    @property
    def tokens(self) -> int | None:
        """Tokens a ViT works on for one image, prefix included."""
        vit = getattr(self.config, "encoder", self.config)
        return vit.num_tokens if isinstance(vit, ViTConfig) else None

    @cached_property
    def memory(self) -> TrainingMemory:
        return training_memory(self.network, self.image_shape, self.batch)

    @cached_property
    def _macs(self) -> dict[str, int]:
        return count_macs(self.network, self.image_shape)


def count_parameters(config: ModelConfig) -> int:
    """Parameters alone, the quick way."""
    return Account(config).parameters
