"""What a network is made of, seen from outside: patches, heads, width, depth, dropout, where a stranger can tell."""

from __future__ import annotations

from dataclasses import dataclass

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
    patch = next((size for module in model.modules() if (size := _patch_size(module)) is not None), None)
    rates = [float(module.p) for module in model.modules() if isinstance(module, nn.Dropout)]
    return Anatomy(
        patch_size=patch,
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


def _patch_size(module: nn.Module) -> tuple[int, int] | None:
    """Of a convolution whose stride is its size, or of a filter that says what it cuts, as ours does."""
    weight = getattr(module, "weight", None)
    kernel, stride = getattr(module, "kernel_size", None), getattr(module, "stride", None)
    if kernel is None:
        kernel = stride = getattr(module, "patch_size", None)
    if not isinstance(weight, Tensor) or weight.ndim != 4 or not isinstance(kernel, tuple) or kernel != stride:
        return None
    return (int(kernel[0]), int(kernel[1])) if kernel[0] > 2 and tuple(weight.shape[-2:]) == kernel else None
