"""What a network is made of, seen from outside: patches, heads, width, depth, dropout, where a stranger can tell."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

DROPS = ("dropout", "droppath", "stochasticdepth", "dropblock")


@dataclass(frozen=True)
class Anatomy:
    """None: it cannot be told."""

    patch_size: tuple[int, int] | None = None
    embed_dim: int | None = None
    num_heads: int | None = None
    depth: int | None = None
    drop_rate: float | None = None
    """The largest dropout."""


def anatomy_of(model: nn.Module) -> Anatomy:
    attentions = [module for module in model.modules() if _heads(module) is not None]
    rates = [float(module.p) for module in model.modules() if isinstance(module, nn.Dropout)]
    return Anatomy(
        patch_size=_patch_size(model),
        embed_dim=_width(attentions[0]) if attentions else None,
        num_heads=_heads(attentions[0]) if attentions else None,
        depth=len(attentions) or None,
        drop_rate=max(rates, default=None),
    )


def is_drop(module: nn.Module) -> bool:
    """Whatever leaves something out by chance while training."""
    return type(module).__name__.lower().startswith(DROPS)


def _heads(module: nn.Module) -> int | None:
    heads = getattr(module, "num_heads", None) or getattr(module, "num_attention_heads", None)
    return heads if isinstance(heads, int) and _width(module) is not None else None


def _width(module: nn.Module) -> int | None:
    if isinstance(module, nn.MultiheadAttention):
        return module.embed_dim
    for name in ("qkv", "query", "q", "q_proj", "to_q", "to_qkv"):
        layer = getattr(module, name, None)
        if isinstance(layer, nn.Linear):
            return layer.in_features
    return None


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


def _as_pair(size: object) -> tuple[int, int] | None:
    if isinstance(size, int):
        return size, size
    if isinstance(size, tuple) and len(size) == 2 and all(isinstance(side, int) for side in size):
        return size[0], size[1]
    return None


def _sides(weight: object) -> tuple[int, int] | None:
    """Of the filters (D, C, height, width)."""
    return (weight.shape[2], weight.shape[3]) if isinstance(weight, Tensor) and weight.ndim == 4 else None


def looks_trained(model: nn.Module) -> bool:
    """Norms begin at exactly one and zero: those that are elsewhere have been trained. Without norms, or where they
    have no weights, nothing says so."""
    norms = [one for one in model.modules() if "norm" in type(one).__name__.lower()]
    weights = [getattr(one, "weight", None) for one in norms]
    return any(isinstance(one, torch.Tensor) and one.numel() > 1 and float(one.detach().std()) > 0 for one in weights)
