"""Everything a model costs, in one object."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import nn

from vitscope.core.config import updated
from vitscope.models.accounting.compute import count_macs
from vitscope.models.accounting.hollow import build_hollow
from vitscope.models.accounting.memory import TrainingMemory, training_memory
from vitscope.models.accounting.parts import Part, list_parts
from vitscope.models.config import ModelConfig, ViTConfig, pair


@dataclass(frozen=True)
class Account:
    """Counted on a network built on the meta device: it takes no memory and no time, whatever its size."""

    config: ModelConfig
    batch: int = 1

    @cached_property
    def network(self) -> Any:
        return build_hollow(self.config)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        return (self.config.in_chans, *pair(self.config.img_size))

    @cached_property
    def parts(self) -> list[Part]:
        return list_parts(self.network, self._macs)

    @cached_property
    def parameters(self) -> int:
        return _parameters(self.network)

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
    """Parameters alone, the quick way: of a ViT's alike blocks one is built, and counted `depth` times."""
    if not isinstance(config, ViTConfig) or isinstance(config.num_heads, tuple) or isinstance(config.mlp_dim, tuple):
        return Account(config).parameters
    shallow = Account(updated(config, depth=1)).network
    return _parameters(shallow) + (config.depth - 1) * _parameters(shallow.blocks)


def _parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
