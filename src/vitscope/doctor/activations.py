"""A forward pass that is watched: how large each block's output is, and how evenly each attention looks.

B pictures, h heads, N tokens, D width.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from vitscope.models.layers.attention import Attention


@dataclass
class Watched:
    """By the name of the module."""

    largest: dict[str, float] = field(default_factory=dict)
    """Largest absolute value of what a block or layer gives."""
    entropy: dict[str, float] = field(default_factory=dict)
    """Mean entropy of attention as a share of the most there can be, ln N: 1 looks everywhere alike, 0 at one token."""


def watched_forward(model: nn.Module, images: Tensor) -> Watched:
    """One pass over `images`; the host waits once, at its end."""
    largest: dict[str, Tensor] = {}
    entropy: dict[str, Tensor] = {}
    with contextlib.ExitStack() as stack:
        for name, module in model.named_modules():
            if isinstance(module, Attention):
                stack.enter_context(_hooked(module, _entropy_into(entropy, name)))
            if _is_worth_watching(model, name, module):
                stack.enter_context(_hooked(module, _largest_into(largest, name)))
        model(images)
    return Watched(_read(largest), _read(entropy))


def _is_worth_watching(model: nn.Module, name: str, module: nn.Module) -> bool:
    """Blocks of a list, and the top-level layers: the road from pixels to logits in a handful of stations."""
    parent = model.get_submodule(name.rpartition(".")[0]) if "." in name else model
    has_weights = any(True for _ in module.parameters())
    return bool(name) and has_weights and (parent is model or isinstance(parent, nn.ModuleList | nn.Sequential))


@contextlib.contextmanager
def _hooked(module: nn.Module, hook: Any) -> Iterator[None]:
    handle = module.register_forward_hook(hook, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()


def _largest_into(found: dict[str, Tensor], name: str) -> Any:
    def note(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        if isinstance(output, Tensor) and output.is_floating_point():
            found[name] = output.detach().abs().amax().float()

    return note


def _entropy_into(found: dict[str, Tensor], name: str) -> Any:
    def note(module: Attention, args: Any, kwargs: Any, output: Any) -> None:
        weights = module.weights(*args, **kwargs).detach()  # (B, h, N, N)
        tokens = weights.shape[-1]
        if tokens > 1:
            found[name] = torch.special.entr(weights).sum(-1).mean() / math.log(tokens)

    return note


def _read(found: dict[str, Tensor]) -> dict[str, float]:
    if not found:
        return {}
    values = torch.stack([value.float() for value in found.values()]).tolist()
    return dict(zip(found, values, strict=True))
