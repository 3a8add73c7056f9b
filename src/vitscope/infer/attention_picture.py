"""Where a token looks: a photograph, one layer's attention from one token, the two together, and head by head."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from vitscope.core.errors import InputError, expected
from vitscope.data.config import PreprocessConfig
from vitscope.data.preprocess import preprocess, resize
from vitscope.models.config import ViTConfig
from vitscope.models.modes import in_mode

if TYPE_CHECKING:
    from PIL.Image import Image


@torch.no_grad()
def attention_from(
    model: Any,
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
    model = getattr(model, "encoder", model)  # a masked model looks with its encoder
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
    model: Any,
    picture: Image,
    preprocessing: PreprocessConfig,
    path: str | Path,
    *,
    layer: int = -1,
    patch: tuple[int, int] | None = None,
    title: str = "",
) -> Path:
    """Write a PNG: picture / attention / overlay, then a map per head with its largest weight."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    heads = attention_from(model, picture, preprocessing, layer=layer, patch=patch)
    model = getattr(model, "encoder", model)
    shown = np.asarray(resize(picture.convert("RGB"), preprocessing))
    mean = heads.mean(axis=0)
    columns = max(3, min(len(heads), 6))
    rows = 1 + -(-len(heads) // columns)
    figure = Figure(figsize=(2.6 * columns, 2.8 * rows + 0.4), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title or f"attention in layer {layer % model.config.depth}")
    grid = figure.add_gridspec(rows, columns)

    extent = (0, shown.shape[1], shown.shape[0], 0)
    top = [figure.add_subplot(grid[0, i]) for i in range(3)]
    top[0].imshow(shown)
    _mark(top[0], model.config, patch)
    top[0].set_title("picture" + (", the patch that looks" if patch is not None else ""), fontsize=9)
    drawn = top[1].imshow(mean, cmap="viridis", extent=extent)
    figure.colorbar(drawn, ax=top[1], shrink=0.8)
    top[1].set_title("attention, mean of heads", fontsize=9)
    top[2].imshow(shown)
    top[2].imshow(mean, cmap="viridis", alpha=0.6, extent=extent, interpolation="bilinear")
    top[2].set_title("overlay", fontsize=9)
    axes = list(top)
    for i, head in enumerate(heads):
        axis = figure.add_subplot(grid[1 + i // columns, i % columns])
        axis.imshow(head, cmap="viridis", extent=extent)
        axis.set_title(f"head {i}, max {head.max():.3f}", fontsize=8)
        axes.append(axis)
    for axis in axes:
        axis.set_axis_off()
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    return path


def _mark(axis: Any, config: Any, patch: tuple[int, int] | None) -> None:
    """A frame around the patch that looks."""
    if patch is None:
        return
    from matplotlib.patches import Rectangle

    size = config.patch_size if isinstance(config.patch_size, tuple) else (config.patch_size,) * 2
    corner = (patch[1] * size[1], patch[0] * size[0])
    axis.add_patch(Rectangle(corner, size[1], size[0], fill=False, edgecolor="red", linewidth=2))
