"""Where the units of a network lie in its tensors, by its family."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from torch import nn

from vitscope.core.errors import UsageError, expected
from vitscope.models.config import CNNConfig, ResNetConfig, ViTConfig
from vitscope.models.model import VisionModel
from vitscope.sparse.families import cnn, resnet, vit
from vitscope.sparse.pieces import Group
from vitscope.weights.folder import unwrapped


class Family(Protocol):
    """What a file in `families/` says."""

    def groups(self, config: Any) -> tuple[Group, ...]:
        """The units of a network, in the order of the blocks."""
        ...

    def smaller_config(self, config: Any, counts: Mapping[str, tuple[int, ...]]) -> Any:
        """The settings with these many units of each kind left in each group; the same units as before: the same."""
        ...

    def prunable(self, config: Any, *, patch_embed: bool) -> list[str]:
        """Names of the weights that unstructured pruning may take from."""
        ...


FAMILIES: dict[type, Family] = {ViTConfig: vit, ResNetConfig: resnet, CNNConfig: cnn}


def groups_of(model: nn.Module) -> tuple[Group, ...]:
    """The groups of units of a network: what competes, and which rows and columns of which tensors it is."""
    network = network_of(model)
    return family_of(network).groups(network.config)


def family_of(network: VisionModel) -> Family:
    return FAMILIES[type(network.config)]


def network_of(model: nn.Module) -> VisionModel:
    """The network itself, out of whatever is wrapped around it; families without units are refused."""
    inner = unwrapped(model)
    config = getattr(inner, "config", None)
    if not isinstance(inner, VisionModel) or type(config) not in FAMILIES:
        name = f"a model of the family '{getattr(config, 'family', type(inner).__name__)}'"
        raise UsageError(
            expected("model", "a ViT (ViT, DeiT, DINOv2 and their like), a ResNet or a CNN, which have units", name),
            where="vitscope.sparse",
            fix="take a vit_*, deit_*, resnet* or mnist_cnn model; units of other families cannot be removed",
        )
    return inner
