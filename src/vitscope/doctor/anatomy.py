"""What a network is made of, seen from outside: patches, heads, width, depth, dropout, where a stranger can tell."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

from torch import Tensor, nn

from vitscope.doctor.attention_parts import MOST_PREFIX, is_attention, size_of
from vitscope.doctor.batch import with_channels
from vitscope.doctor.calls import calls_of

DROPS = ("dropout", "droppath", "stochasticdepth", "dropblock")


@dataclass(frozen=True)
class Anatomy:
    """None: it cannot be told."""

    patch_size: tuple[int, int] | None = None
    embed_dim: int | None = None
    num_heads: int | None = None
    head_dim: int | None = None
    """Where it does not follow from width and heads."""
    depth: int | None = None
    drop_rate: float | None = None
    """The largest dropout."""


def anatomy_of(model: nn.Module, images: Tensor | None = None) -> Anatomy:
    """With `images` a pass tells what the modules do not."""
    sizes = [size for module in model.modules() if (size := size_of(module)) is not None]
    first = next((size for size in sizes if size.head_dim is not None), sizes[0] if sizes else None)
    rates = [float(module.p) for module in model.modules() if isinstance(module, nn.Dropout)]
    patch = _patch_size(model)
    if patch is None and sizes and images is not None:
        patch = _patch_size_in_a_pass(model, images)
    return Anatomy(
        patch_size=patch,
        embed_dim=None if first is None else first.width,
        num_heads=None if first is None else first.num_heads,
        head_dim=None if first is None or first.follows else first.head_dim,
        depth=len(sizes) or None,
        drop_rate=max(rates, default=None),
    )


def is_drop(module: nn.Module) -> bool:
    """Whatever leaves something out by chance while training."""
    return type(module).__name__.lower().startswith(DROPS)


def _patch_size(model: nn.Module) -> tuple[int, int] | None:
    """Of a module that names it, or of a filter that moves by its own size."""
    for module in model.modules():
        if "patch" in type(module).__name__.lower():
            named = _as_pair(getattr(module, "patch_size", None)) or _sides(getattr(module, "weight", None))
            if named is not None:
                return named
    for module in model.modules():
        kernel, stride = getattr(module, "kernel_size", None), getattr(module, "stride", None)
        if isinstance(kernel, tuple) and len(kernel) == 2 and kernel == stride and kernel[0] > 2:
            return int(kernel[0]), int(kernel[1])
    return None


def _patch_size_in_a_pass(model: nn.Module, images: Tensor) -> tuple[int, int] | None:
    """Of a filter that is given the pictures and makes as many places as there are tokens, or of the first layer that
    is given all their pixels, those of a square patch in each row."""
    pixels = with_channels(images)
    channels, height, width = pixels.shape[1:]
    wanted = (nn.Linear, nn.Conv2d)
    calls = calls_of(model, images, lambda module: isinstance(module, wanted) or is_attention(module))
    tokens = next((call.tokens(len(images)) for call in calls if is_attention(call.module)), 0)
    for call in calls:
        given = call.given
        if isinstance(call.module, nn.Conv2d):
            down, across = call.module.kernel_size
            is_cut = given.shape == pixels.shape and call.module.stride == (down, across)
            if is_cut and tokens - (height // down) * (width // across) in range(MOST_PREFIX + 1):
                return down, across
        elif isinstance(call.module, nn.Linear):
            side = math.isqrt(given.shape[-1] // channels)
            is_cut = given.shape[-1] == channels * side * side and given.numel() == images.numel()
            if is_cut and given.shape[-1] < images[0].numel():
                return side, side
    return None


def _as_pair(size: object) -> tuple[int, int] | None:
    if isinstance(size, int):
        return size, size
    if isinstance(size, tuple) and len(size) == 2 and all(isinstance(side, int) for side in size):
        return size[0], size[1]
    return None


def _sides(weight: object) -> tuple[int, int] | None:
    """Of the filters (D, C, height, width)."""
    return (weight.shape[2], weight.shape[3]) if isinstance(weight, Tensor) and weight.ndim == 4 else None


def looks_trained(model: nn.Module, names: Collection[str] | None = None) -> bool:
    """Norms begin at exactly one and zero: those that are elsewhere have been trained. Without norms, or where they
    have no weights, nothing says so. With `names`: by those alone."""
    weights = [one for name, one in norm_weights(model).items() if names is None or name in names]
    return any(one.numel() > 1 and float(one.detach().std()) > 0 for one in weights)


def norm_weights(model: nn.Module) -> dict[str, Tensor]:
    """By the parameter's name."""
    norms = [(name, one) for name, one in model.named_modules() if "norm" in type(one).__name__.lower()]
    weights = [(f"{name}.weight".strip("."), getattr(one, "weight", None)) for name, one in norms]
    return {name: weight for name, weight in weights if isinstance(weight, Tensor)}
