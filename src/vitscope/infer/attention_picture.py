"""Where a token looks: a photograph, one layer's attention from one token, the two together, and head by head."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from vitscope.core.errors import InputError, expected
from vitscope.data.config import PreprocessConfig
from vitscope.data.preprocess import preprocess, resize
from vitscope.models.config import ViTConfig, pair
from vitscope.models.model import VisionModel
from vitscope.models.modes import in_mode
from vitscope.models.reconstruction import MaskedModel

if TYPE_CHECKING:
    from PIL.Image import Image


@torch.no_grad()
def attention_from(
    model: VisionModel,
    picture: Image,
    preprocessing: PreprocessConfig,
    *,
    layer: int = -1,
    patch: tuple[int, int] | None = None,
) -> np.ndarray:
    """(heads, h, w): how much each patch is looked at, per head, in one layer.

    The one who looks is the class token or, where `patch` (row, column) is given, that patch. A model without a
    class token needs a patch. Weights of a head sum to 1 over all tokens; what goes to prefix tokens is left out.
    """
    model = _looking(model)
    cfg = model.config
    if not isinstance(cfg, ViTConfig):
        raise InputError(
            expected("model", "a ViT, whose tokens all see each other", type(model).__name__),
            fix="attention is drawn for ViT, DeiT and DINOv2 models",
        )
    down, across = cfg.grid_size
    if patch is None and not cfg.class_token:
        raise InputError(expected("patch", "(row, column), as this model has no class token", None))
    if patch is not None and not (0 <= patch[0] < down and 0 <= patch[1] < across):
        raise InputError(expected("patch", f"(row, column) within {down} x {across}", patch))
    query = 0 if patch is None else cfg.num_prefix_tokens + patch[0] * across + patch[1]
    parameter = next(model.parameters())
    images = preprocess(picture, preprocessing)[None].to(parameter.device, parameter.dtype)
    with in_mode(model, training=False):
        maps = model.attention_maps(images, [layer])
    weights = maps[layer % cfg.depth][0, :, query, cfg.num_prefix_tokens :]
    return weights.float().cpu().reshape(-1, down, across).numpy()


def draw_attention(
    model: VisionModel,
    picture: Image,
    preprocessing: PreprocessConfig,
    path: str | Path,
    *,
    layer: int = -1,
    patch: tuple[int, int] | None = None,
    title: str = "",
) -> Path:
    """Write a PNG: picture / attention / overlay, then a map per head.

    Maps are drawn as multiples of looking at every token alike, from 0 up to their largest (at least 3, so that a
    model that looks everywhere alike gives a flat map, not magnified noise).
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    heads = attention_from(model, picture, preprocessing, layer=layer, patch=patch)
    model = _looking(model)
    heads = heads * model.config.num_tokens
    mean = heads.mean(axis=0)
    shown = np.asarray(resize(picture.convert("RGB"), preprocessing))
    columns = max(3, min(len(heads), 6))
    rows = -(-len(heads) // columns)
    shape = shown.shape[0] / shown.shape[1]
    heights = (3.1 * shape + 1.0, rows * (9.3 / columns * shape + 0.3))
    figure = Figure(figsize=(9.6, sum(heights) + 0.5), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title or f"attention in layer {layer % model.config.depth}")
    upper, lower = figure.add_gridspec(2, 1, height_ratios=heights)
    extent = (0, shown.shape[1], shown.shape[0], 0)

    def draw(axis: Any, image: np.ndarray, name: str, **look: Any) -> Any:
        axis.set_title(name, fontsize=9)
        axis.set_axis_off()
        return axis.imshow(image, extent=extent, **look)

    def scale(weights: np.ndarray) -> dict[str, Any]:
        return {"cmap": "viridis", "vmin": 0.0, "vmax": max(3.0, float(weights.max()))}

    first, second, third = (figure.add_subplot(place) for place in upper.subgridspec(1, 3))
    draw(first, shown, "picture" if patch is None else "picture, the patch that looks")
    _mark(first, model.config, patch)
    drawn = draw(second, mean, "attention, mean of heads", **scale(mean))
    figure.colorbar(drawn, ax=[first, second, third], location="bottom", shrink=0.4, aspect=40, label="1 = all alike")
    draw(third, shown, "overlay")
    draw(third, mean, "overlay", alpha=0.6, interpolation="bilinear", **scale(mean))
    places = lower.subgridspec(rows, columns)
    for i, head in enumerate(heads):
        axis = figure.add_subplot(places[i // columns, i % columns])
        draw(axis, head, f"head {i}, up to {head.max():.1f}", **scale(head))
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    return path


def _looking(model: VisionModel) -> VisionModel:
    """A masked model looks with its encoder."""
    return model.encoder if isinstance(model, MaskedModel) else model


def _mark(axis: Any, config: Any, patch: tuple[int, int] | None) -> None:
    """A frame around the patch that looks."""
    if patch is None:
        return
    from matplotlib.patches import Rectangle

    height, width = pair(config.patch_size)
    corner = (patch[1] * width, patch[0] * height)
    axis.add_patch(Rectangle(corner, width, height, fill=False, edgecolor="red", linewidth=2))
