"""How much each attention weight matters for an answer: d answer / d A, while attention stays fused.

A head mixes values by its weights, M = A V. So dA = dM V^T: the gradient at the mixture, which every kernel passes on,
and the values suffice; A itself never has to be part of the graph. T tokens, d numbers per head.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from vitscope.infer.explain.reader import pool_weights
from vitscope.models.layers.attention import Attention
from vitscope.models.modes import in_mode
from vitscope.models.vit import ViT


@dataclass
class _Pass:
    """What one attention saw while the model ran."""

    read: tuple[Any, ...] = ()
    """What it was called with."""
    projected: Tensor | None = None
    """q, k and v side by side (k and v in a pool), (1, T, ...)."""
    mixed: Tensor | None = None
    """(1, T, heads * d)."""


@dataclass(frozen=True)
class Relevance:
    """What the attention weights matter for one answer: E_h[(dA * A)^+], the mean over heads of what speaks for it."""

    layers: list[Tensor] = field(default_factory=list)
    """Of each layer that has heads (T, T), on the CPU; what has none mixes nothing, and changes nothing here."""
    pool: Tensor | None = None
    """(N,): of the pooling query, where the model pools by attention."""


def relevance_of(model: ViT, images: Tensor, answer: Callable[[Tensor], Tensor]) -> Relevance:
    """`answer` turns logits (1, K) into the number that is explained. Parameters get no gradient, and need not want
    any: it flows from the picture."""
    with torch.inference_mode(False), torch.enable_grad(), in_mode(model, training=False):
        images = images.clone().requires_grad_()
        attentions = [block.attn for block in model.blocks if isinstance(block.attn, Attention)]
        with _watched(attentions, model.attn_pool) as passes:
            said = answer(model(images))
        gradients = torch.autograd.grad(said, [told.mixed for told in passes if told.mixed is not None])
    with torch.no_grad(), in_mode(model, training=False):
        layers = [
            _positive(attn.weights(*told.read)[0], _values(told, attn.num_heads), gradient[0])  # pyright: ignore
            for attn, told, gradient in zip(attentions, passes, gradients, strict=False)
        ]
        return Relevance(layers, _of_pool(model, passes[-1], gradients[-1]) if model.attn_pool is not None else None)


def _positive(weights: Tensor, values: Tensor, mixed: Tensor) -> Tensor:
    """E_h[(dA * A)^+] from A (heads, Q, T), V (heads, T, d) and dM (Q, heads * d), by heads so as to hold few maps."""
    heads = len(weights)
    total = torch.zeros_like(weights[0])
    for head, gradient in enumerate(mixed.unflatten(-1, (heads, -1)).transpose(0, 1)):
        wanted = gradient.to(weights.dtype) @ values[head].to(weights.dtype).T
        total += (wanted * weights[head]).clamp_(min=0)
    return (total / heads).float().cpu()


def _values(told: _Pass, heads: int) -> Tensor:
    """V (heads, T, d): the last part of what was projected."""
    projected: Any = told.projected
    width = told.mixed.shape[-1]  # pyright: ignore[reportOptionalMemberAccess]
    return projected[0, :, -width:].detach().unflatten(-1, (heads, -1)).transpose(0, 1)


def _of_pool(model: ViT, told: _Pass, gradient: Tensor) -> Tensor:
    pool: Any = model.attn_pool
    weights = pool_weights(pool, told.read[0][0])[:, None]
    return _positive(weights, _values(told, pool.num_heads), gradient[0])[0]


@contextmanager
def _watched(attentions: list[Any], pool: nn.Module | None) -> Iterator[list[_Pass]]:
    """Hooks that note what passes; gone afterwards, whatever happens."""
    parts: list[Any] = [*attentions, *([] if pool is None else [pool])]
    passes = [_Pass() for _ in parts]
    hooks = []
    try:
        for part, told in zip(parts, passes, strict=True):
            source = part.qkv if isinstance(part, Attention) else part.kv
            hooks.append(part.register_forward_pre_hook(_noting(told, "read")))
            hooks.append(source.register_forward_hook(_noting_output(told)))
            hooks.append(part.proj.register_forward_pre_hook(_noting(told, "mixed")))
        yield passes
    finally:
        for hook in hooks:
            hook.remove()


def _noting(told: _Pass, name: str) -> Callable[[nn.Module, tuple[Any, ...]], None]:
    def note(_: nn.Module, given: tuple[Any, ...]) -> None:
        setattr(told, name, given if name == "read" else given[0])

    return note


def _noting_output(told: _Pass) -> Callable[[nn.Module, tuple[Any, ...], Tensor], None]:
    def note(_: nn.Module, __: tuple[Any, ...], output: Tensor) -> None:
        told.projected = output

    return note
