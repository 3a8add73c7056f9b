"""What the shapes of stored tensors say of the model they are for: picture, patch, channels, classes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from vitscope.core.config import updated
from vitscope.core.errors import ConfigError, expected
from vitscope.models.config import MAEConfig, ModelConfig, SimMIMConfig, ViTConfig, pair
from vitscope.weights.files import Shape

PATCH_FILTER = "patch_embed.proj.weight"
PIXEL_FILTERS = (PATCH_FILTER, "conv1.weight", "stages.0.conv1.weight")
"""What reads pixels, (D, C, p, q), in a ViT or Swin, a ResNet, a CNN."""


def stored_config(like: ModelConfig, shapes: Mapping[str, Shape], *, heads: Sequence[str], where: str) -> ModelConfig:
    """`like`, as these tensors (by our names) have it: image and patch size, channels and classes may differ. `heads`
    are the layers whose rows are the classes."""
    if isinstance(like, MAEConfig | SimMIMConfig):
        inner = {name.removeprefix("encoder."): shape for name, shape in shapes.items() if name.startswith("encoder.")}
        return updated(like, encoder=stored_config(like.encoder, inner, heads=(), where=where))
    changes: dict[str, Any] = {"num_classes": _classes(heads, shapes)}
    for name in PIXEL_FILTERS:
        if _is_whole(shapes, name, 4):
            changes["in_chans"] = shapes[name][1]
    if _is_whole(shapes, PATCH_FILTER, 4) and hasattr(like, "patch_size"):
        patch = shapes[PATCH_FILTER][2:]
        if tuple(patch) != pair(like.patch_size):  # pyright: ignore[reportAttributeAccessIssue]
            changes["patch_size"] = patch[0] if patch[0] == patch[1] else tuple(patch)
    if isinstance(like, ViTConfig):
        grid = _grid(like, shapes, where)
        patch = pair(changes.get("patch_size", like.patch_size))
        size = (grid[0] * patch[0], grid[1] * patch[1])
        if size != pair(like.img_size):
            changes["img_size"] = size[0] if size[0] == size[1] else size
    return updated(like, **changes)


def _classes(heads: Sequence[str], shapes: Mapping[str, Shape]) -> int:
    return next((shapes[f"{head}.weight"][0] for head in heads if shapes.get(f"{head}.weight")), 0)


def _is_whole(shapes: Mapping[str, Shape], name: str, axes: int) -> bool:
    """Whether it has as many axes, none of them empty: of others nothing is learned, and they fit nowhere."""
    return len(shapes.get(name, ())) == axes and all(shapes[name])


def _grid(like: ViTConfig, shapes: Mapping[str, Shape], where: str) -> tuple[int, int]:
    """Patches (down, across) of the position table; that of `like` where no table tells."""
    if not _is_whole(shapes, "pos_embed", 3):
        return like.grid_size
    count = shapes["pos_embed"][1] - (like.num_prefix_tokens if like.prefix_position else 0)
    if count == like.num_patches:
        return like.grid_size
    side = math.isqrt(max(count, 0))
    if count < 1 or side * side != count:
        raise ConfigError(
            expected("pos_embed", f"a square grid of patches, or {like.num_patches} of them", f"{count} patches"),
            where=where,
            fix="give a config with the img_size and tokens the weights are for",
        )
    return side, side
