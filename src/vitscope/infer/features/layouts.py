"""How each family keeps what it knows of a picture: in tokens, in a grid, in maps, or in states; and in which layers.

B batch, P prefix tokens, N patches, D width (C of a stage), h w grid. A layout reads layers, and gives what it read one
of the forms in `Tokens`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from vitscope.core.errors import UsageError, expected
from vitscope.models.cnn import CNN
from vitscope.models.lstm import LSTM
from vitscope.models.model import VisionModel
from vitscope.models.reconstruction import MaskedModel
from vitscope.models.resnet import ResNet
from vitscope.models.swin import Swin
from vitscope.models.vit import ViT

Tokens = Literal["pooled", "cls", "mean", "patch", "map", "all"]
TOKENS: tuple[Tokens, ...] = ("pooled", "cls", "mean", "patch", "map", "all")
VECTORS: tuple[Tokens, ...] = ("pooled", "cls", "mean")
"""Those that are one vector per picture."""
AXES: dict[Tokens, str] = {
    "pooled": "(B, D)",
    "cls": "(B, D)",
    "mean": "(B, D)",
    "patch": "(B, N, D)",
    "map": "(B, D, h, w)",
    "all": "(B, P + N, D)",
}
Norm = Literal["after", "before"]
Form = Callable[[Tensor], Tensor]


class Layout:
    """A model that only has an end: the fallback, and what the others change."""

    unit = "layer"
    """What its layers are called."""

    def __init__(self, model: VisionModel) -> None:
        self.model: Any = model

    @property
    def layers(self) -> Sequence[int]:
        """Numbers of the layers that can be read."""
        return (0,)

    def norm_of(self, layer: int, wished: bool) -> Norm | None:
        """Whether this layer comes before or after the model's last norm; None where that has no meaning."""
        del layer, wished
        return None

    def read(self, images: Tensor, layers: Sequence[int], norm: bool) -> Mapping[int, Tensor]:
        del norm
        return {layers[0]: self.model.forward_features(images)}

    @property
    def forms(self) -> dict[Tokens, Form]:
        """What a layer's content can be given as."""
        return {"pooled": self.pooled}

    def pooled(self, content: Tensor) -> Tensor:
        """As the head would have it."""
        return self.model.forward_head(content, pre_logits=True)


class TokenLayout(Layout):
    """ViT and its kin: (B, P + N, D) after each block."""

    @property
    def layers(self) -> Sequence[int]:
        return range(self.model.config.depth)

    def norm_of(self, layer: int, wished: bool) -> Norm | None:
        del layer  # all blocks are as wide as the last norm
        return "after" if wished else "before"

    def read(self, images: Tensor, layers: Sequence[int], norm: bool) -> Mapping[int, Tensor]:
        return self.model.forward_intermediates(images, layers, norm=norm)

    @property
    def forms(self) -> dict[Tokens, Form]:
        prefix = self.model.config.num_prefix_tokens
        found: dict[Tokens, Form] = {
            "pooled": self.pooled,
            "mean": lambda tokens: tokens[:, prefix:].mean(1),
            "patch": lambda tokens: tokens[:, prefix:],
            "map": self.model.feature_map,
            "all": lambda tokens: tokens,
        }
        if self.model.config.class_token:
            found["cls"] = lambda tokens: tokens[:, 0]
        return found


class StageLayout(Layout):
    """CNN and ResNet: maps (B, C, h, w) after each stage."""

    unit = "stage"

    @property
    def layers(self) -> Sequence[int]:
        return range(len(self.model.stages))

    def read(self, images: Tensor, layers: Sequence[int], norm: bool) -> Mapping[int, Tensor]:
        del norm
        return self.model.forward_intermediates(images, layers)

    @property
    def forms(self) -> dict[Tokens, Form]:
        return {
            "pooled": self.pooled,
            "mean": lambda maps: maps.mean((2, 3)),
            "patch": lambda maps: maps.flatten(2).transpose(1, 2),
            "map": lambda maps: maps,
            "all": lambda maps: maps.flatten(2).transpose(1, 2),
        }


class SwinLayout(StageLayout):
    """Swin: tokens in their grid, (B, h, w, C), after each stage; the last norm is as wide as the last stage alone."""

    @property
    def layers(self) -> Sequence[int]:
        return range(len(self.model.layers))

    def norm_of(self, layer: int, wished: bool) -> Norm | None:
        return "after" if wished and layer == self.layers[-1] else "before"

    def read(self, images: Tensor, layers: Sequence[int], norm: bool) -> Mapping[int, Tensor]:
        found = self.model.forward_intermediates(images, layers)
        return {
            layer: self.model.norm(grid) if self.norm_of(layer, norm) == "after" else grid
            for layer, grid in found.items()
        }

    @property
    def forms(self) -> dict[Tokens, Form]:
        return {
            "pooled": self.pooled,
            "mean": lambda grid: grid.mean((1, 2)),
            "patch": lambda grid: grid.flatten(1, 2),
            "map": lambda grid: grid.permute(0, 3, 1, 2),
            "all": lambda grid: grid.flatten(1, 2),
        }


class StateLayout(Layout):
    """LSTM: the last layer's state after every row, (B, H, D); torch keeps the layers below it to itself."""

    @property
    def layers(self) -> Sequence[int]:
        return (self.model.config.depth - 1,)

    @property
    def forms(self) -> dict[Tokens, Form]:
        return {"pooled": self.pooled, "all": lambda states: states}


def layout_of(model: VisionModel) -> Layout:
    """A masked model's features are its encoder's, of the whole picture."""
    if isinstance(model, MaskedModel):
        model = model.encoder
    for family, layout in ((ViT, TokenLayout), (Swin, SwinLayout), (LSTM, StateLayout)):
        if isinstance(model, family):
            return layout(model)
    return StageLayout(model) if isinstance(model, CNN | ResNet) else Layout(model)


def chosen_layers(layout: Layout, wished: int | Sequence[int] | None) -> list[int]:
    """Each wished layer once, in the order given: all by default, negative numbers count from the end."""
    known = layout.layers
    if wished is None:
        return list(known)
    asked = [wished] if isinstance(wished, int) else list(wished)
    if not asked:
        raise UsageError(expected("layers", "at least one layer", "none"), fix="leave it out for the last one")
    found: list[int] = []
    for layer in asked:
        number = known[layer] if -len(known) <= layer < 0 else layer
        if number not in known:
            words = f"{known[0]} to {known[-1]}, or -1 to -{len(known)}" if len(known) > 1 else f"{known[0]} or -1"
            raise UsageError(
                expected("layers", f"{layout.unit}s {words}", layer),
                where=type(layout.model).__name__,
                fix="leave it out for the last one",
            )
        found += [number] if number not in found else []
    return found


def form_of(layout: Layout, tokens: Tokens) -> Form:
    """What turns a layer's content into `tokens`, or a refusal that says what the model has."""
    if tokens not in layout.forms:
        has = ", ".join(form for form in TOKENS if form in layout.forms)
        raise UsageError(
            expected("tokens", f"one of {has} for {type(layout.model).__name__}", repr(tokens)),
            fix="'pooled' is what the model's own head would read",
        )
    return layout.forms[tokens]


@torch.inference_mode()
def shapes_of(read: Callable[[Tensor], Sequence[Tensor]], model: VisionModel, size: Sequence[int]) -> list[torch.Size]:
    """Of what is read from one picture of `size` (C, H, W), without the batch."""
    like = next(model.parameters())
    return [content.shape[1:] for content in read(torch.zeros(1, *size, device=like.device, dtype=like.dtype))]
