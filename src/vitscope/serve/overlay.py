"""Where a model looks, laid over the picture: the one place of the server that knows how it is made."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image

from vitscope.core.errors import InputError, expected
from vitscope.data.preprocess import resized_size, to_pixels
from vitscope.infer.predictor import Predictor
from vitscope.infer.stream import stacked
from vitscope.models.config import ViTConfig
from vitscope.models.model import VisionModel
from vitscope.models.reconstruction import MaskedModel

METHODS = ("attention",)
LARGEST = 4_000_000
"""Pixels of the picture that is drawn on: larger ones are made smaller first."""
STRENGTH = 0.5
"""How much of the colours covers the picture."""
UNSEEN = 0.35
"""How bright the picture stays where the model does not see it."""


@dataclass(frozen=True)
class Wish:
    """What is to be shown of a picture."""

    method: str = "attention"
    layer: int = -1
    head: int | None = None
    """None: the mean of all."""
    target: int | None = None
    """The class to be explained, where the method asks for one; None: the likeliest."""

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise InputError(expected("method", f"one of {', '.join(METHODS)}", repr(self.method)))


def can_be_drawn(model: VisionModel) -> bool:
    return isinstance(_looking(model).config, ViTConfig)


@torch.inference_mode()
def draw_overlay(predictor: Predictor, picture: Image.Image, wish: Wish) -> Image.Image:
    """At the picture's own size. The class token looks; where there is none, all patches do, and the mean counts."""
    heat = _attention(predictor, picture, wish)
    shown = np.asarray(picture.convert("RGB"), dtype=np.float32)
    left, top, right, bottom = _seen(predictor, picture)
    grid = Image.fromarray(heat).resize((right - left, bottom - top), Image.Resampling.BICUBIC)
    colours = _coloured(np.asarray(grid).clip(0, 1))
    drawn = shown * UNSEEN
    seen = shown[top:bottom, left:right]
    drawn[top:bottom, left:right] = seen + STRENGTH * (colours - seen)
    return Image.fromarray(drawn.round().astype(np.uint8))


def _attention(predictor: Predictor, picture: Image.Image, wish: Wish) -> np.ndarray:
    """(h, w), from 0 to 1; 1 is the largest, or three times what each token would get if all were alike."""
    model = _looking(predictor.model)
    config = model.config
    if not isinstance(config, ViTConfig):
        raise InputError(expected("model", "a ViT, whose tokens all see each other", type(model).__name__))
    if not -config.depth <= wish.layer < config.depth:
        raise InputError(expected("layer", f"a number from {-config.depth} to {config.depth - 1}", wish.layer))
    layer = wish.layer % config.depth
    images = stacked(
        [to_pixels(picture, predictor.preprocessing)], predictor.preprocessing, predictor.device, predictor.dtype
    )
    maps = model.attention_maps(images, [layer])[layer][0]
    if wish.head is not None and not 0 <= wish.head < len(maps):
        raise InputError(expected("head", f"a number from 0 to {len(maps) - 1}", wish.head))
    weights = maps.mean(0) if wish.head is None else maps[wish.head]
    prefix = config.num_prefix_tokens
    row = weights[0, prefix:] if config.class_token else weights[prefix:, prefix:].mean(0)
    heat = row.float().cpu().reshape(config.grid_size).numpy()
    return heat / max(float(heat.max()), 3 / config.num_tokens)


def _seen(predictor: Predictor, picture: Image.Image) -> tuple[int, int, int, int]:
    """Left, top, right and bottom of what the model sees, in the picture's own pixels."""
    height, width = predictor.preprocessing.img_size
    down, across = resized_size((picture.height, picture.width), predictor.preprocessing)
    x, y = picture.width / across, picture.height / down
    left, top = round((across - width) / 2 * x), round((down - height) / 2 * y)
    right, bottom = picture.width - left, picture.height - top
    return left, top, max(right, left + 1), max(bottom, top + 1)


def _coloured(heat: np.ndarray) -> np.ndarray:
    """(h, w) from 0 to 1 -> (h, w, 3) from 0 to 255."""
    from matplotlib import colormaps

    table = (colormaps["inferno"](np.arange(256))[:, :3] * 255).astype(np.float32)
    return table[(heat * 255).astype(np.uint8)]


def _looking(model: VisionModel) -> VisionModel:
    return model.encoder if isinstance(model, MaskedModel) else model
