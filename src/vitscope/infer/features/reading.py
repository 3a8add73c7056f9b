"""Which features are wanted of a model, each with a name that says what it is: its layer, its form, its norm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from vitscope.infer.features.layouts import AXES, Norm, Tokens, chosen_layers, form_of, layout_of, shapes_of
from vitscope.models.model import VisionModel


@dataclass(frozen=True)
class Feature:
    """One thing a model knows of every picture."""

    name: str
    """Such as `layer11_cls_after_norm`: what it is called in files."""
    layer: int
    """Of `of`, counted from 0."""
    of: int
    unit: str
    """Whether layers are `layer`s (blocks) or `stage`s."""
    tokens: Tokens
    norm: Norm | None
    """Whether it comes after or before the model's last norm; None where the model has none."""
    shape: tuple[int, ...]
    """Of one picture."""

    def to_dict(self) -> dict[str, Any]:
        told = asdict(self) | {"shape": list(self.shape), "axes": AXES[self.tokens]}
        told.pop("name")
        return told

    @property
    def in_words(self) -> str:
        """'layer 11 (the last), class token, after the last norm'"""
        words = {"pooled": "pooled as for the head", "cls": "class token", "mean": "mean of the patches"}
        form = words.get(self.tokens) or {"patch": "patches", "map": "map", "all": "all tokens"}[self.tokens]
        norm = "no last norm" if self.norm is None else f"{self.norm} the last norm"
        place = "the last" if self.layer == self.of - 1 else f"of 0 to {self.of - 1}"
        return f"{self.unit} {self.layer} ({place}), {form}, {norm}"


class Reading:
    """From images (B, C, H, W) to the features wanted, (B, ...) each; `features` says what they are."""

    def __init__(
        self,
        model: VisionModel,
        size: Sequence[int],
        *,
        layers: int | Sequence[int] | None = -1,
        tokens: Tokens = "pooled",
        norm: bool = True,
    ) -> None:
        """`size` (C, H, W) is that of one prepared picture. `layers`: numbers, negative ones from the end, or None for
        all. `norm`: after the model's last norm, wherever that fits."""
        self.model, self.norm = model, norm
        self.tokens: Tokens = tokens
        self._layout = layout_of(model)
        self._form = form_of(self._layout, tokens)
        self._layers = chosen_layers(self._layout, layers)
        shapes = shapes_of(self.separately, model, size)
        self.features = [self._feature(layer, tuple(shape)) for layer, shape in zip(self._layers, shapes, strict=True)]

    def separately(self, images: Tensor) -> list[Tensor]:
        """Each feature by itself, in the order of `features`."""
        found = self._layout.read(images, self._layers, self.norm)
        return [self._form(found[layer]) for layer in self._layers]

    def together(self, images: Tensor) -> Tensor:
        """All features of a picture in one row (B, numbers)."""
        found = [content.flatten(1) for content in self.separately(images)]
        return found[0] if len(found) == 1 else torch.cat(found, 1)

    def apart(self, rows: Tensor) -> dict[str, Tensor]:
        """The inverse of putting `together`: name -> (B, ...)."""
        sizes = [torch.Size(feature.shape).numel() for feature in self.features]
        parts = rows.split(sizes, 1)
        return {
            feature.name: part.reshape(len(rows), *feature.shape)
            for feature, part in zip(self.features, parts, strict=True)
        }

    def _feature(self, layer: int, shape: tuple[int, ...]) -> Feature:
        layout = self._layout
        norm = layout.norm_of(layer, self.norm)
        name = f"{layout.unit}{layer}_{self.tokens}" + (f"_{norm}_norm" if norm else "")
        return Feature(name, layer, layout.layers[-1] + 1, layout.unit, self.tokens, norm, shape)
