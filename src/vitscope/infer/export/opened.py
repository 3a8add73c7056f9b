"""A written file, opened again by the library that others will open it with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Opened:
    """What the file says of itself, and a way to run it."""

    run: Callable[[Tensor], Tensor]
    """Images (B, C, H, W) -> logits or features (B, K)."""
    runtime: str
    """Who runs it, with its version."""
    inputs: dict[str, str]
    """Name -> type and shape, as text."""
    outputs: dict[str, str]
    opset: int | None
    metadata: dict[str, str]


def described(kind: str, shape: list[object]) -> str:
    """('float32', ['batch', 3, 224, 224]) -> 'float32 (batch, 3, 224, 224)'."""
    return f"{kind} ({', '.join(map(str, shape))})"
