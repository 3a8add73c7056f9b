"""The true attention of one picture, layer by layer. It is computed from q and k; the model itself runs fused.

T tokens, P of them before the N = h*w patches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from vitscope.core.errors import InputError, expected
from vitscope.infer.explain.reader import reader_of
from vitscope.infer.explain.subject import looking, subject_of
from vitscope.infer.pictures import Pictures
from vitscope.models.config import ViTConfig
from vitscope.models.modes import in_mode
from vitscope.models.vit import ViT

if TYPE_CHECKING:
    from vitscope.infer.predictor import Predictor


class Layer(NamedTuple):
    """What one block does with one picture."""

    number: int
    weights: Tensor
    """(heads, T, T) in float32: each row one token's look, summing to 1. (0, T, T) of a block without heads."""
    tokens: Tensor
    """(T, D) after the block."""


@torch.no_grad()
def each_layer(model: ViT, images: Tensor) -> Iterator[Layer]:
    """Block by block, so that the maps of only one are in memory: those of a large model at 518 pixels fill gigabytes.
    The same numbers as `model.attention_maps`."""
    model.check_images(images)
    with in_mode(model, training=False):
        tokens = model.forward_intermediates(images)
        before = model.place(model.patch_embed(images))
        for number, block in enumerate(model.blocks):
            if model.config.block_heads[number]:
                weights = block.attention_weights(before, model.rope)[0]  # pyright: ignore[reportCallIssue]
            else:
                weights = before.new_zeros(0, before.shape[1], before.shape[1])
            before = tokens.pop(number)
            yield Layer(number, weights.float(), before[0])


@dataclass(frozen=True)
class AttentionMaps:
    """AttentionMaps weights of one picture, as plain tensors on the CPU."""

    layers: dict[int, Tensor]
    """Layer -> (heads, T, T) in float32."""
    grid: tuple[int, int]
    """Patches (down, across)."""
    prefix: tuple[str, ...]
    """What the tokens before the patches are."""
    reader: Tensor
    """(T,): how much of each token the head reads; summing to 1."""

    def look(self, layer: int = -1, *, head: int | None = None, patch: tuple[int, int] | None = None) -> np.ndarray:
        """(h, w): what each patch gets from who the head reads, or from one patch, as a mean of the heads or in one."""
        weights = self.layers[self._numbered(layer)]
        weights = weights.mean(0) if head is None else weights[chosen_head(head, len(weights))]
        prefix = len(self.prefix)
        if patch is not None and not (0 <= patch[0] < self.grid[0] and 0 <= patch[1] < self.grid[1]):
            raise InputError(expected("patch", f"(row, column) within {self.grid[0]} x {self.grid[1]}", patch))
        row = self.reader @ weights if patch is None else weights[prefix + patch[0] * self.grid[1] + patch[1]]
        return row[prefix:].reshape(self.grid).numpy()

    def save(self, path: str | Path, *, layer: int = -1, head: int | None = None) -> Path:
        """Token x token heat maps of a layer as a PNG: the mean of the heads and each of them, or one alone."""
        from vitscope.infer.explain.token_map import draw_token_maps

        return draw_token_maps(self, path, layer=self._numbered(layer), head=head)

    def _numbered(self, layer: int) -> int:
        number = max(self.layers) + 1 + layer if layer < 0 else layer
        if number not in self.layers:
            raise InputError(expected("layer", f"one of {', '.join(map(str, self.layers))}", layer))
        return number


def attention_of(
    predictor: Predictor, picture: Pictures, *, layers: int | Sequence[int] | None = None
) -> AttentionMaps:
    """Of one picture; `layers` from 0, negative ones from the end, by default all whose attention has heads."""
    model, subject = looking(predictor.model), subject_of(predictor, picture)
    chosen = model.layers_with_heads(layers)
    each = each_layer(model, subject.images)
    kept = {layer.number: layer.weights.cpu() for layer in each if layer.number in chosen}
    reader = reader_of(model, subject.images)
    return AttentionMaps(kept, model.config.grid_size, prefix_names(model.config), reader)


def prefix_names(config: ViTConfig) -> tuple[str, ...]:
    """What the tokens before the patches are, in their order."""
    names = ["class"] * config.class_token + ["distillation"] * config.distilled
    return (*names, *(f"register {number}" for number in range(config.num_registers)))


def chosen_head(head: int, count: int) -> int:
    if not -count <= head < count:
        raise InputError(expected("head", f"a number from {-count} to {count - 1}", head))
    return head % count
