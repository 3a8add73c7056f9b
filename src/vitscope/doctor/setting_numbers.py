"""What the numbers of the settings tell by themselves: the same of a set-up and of what a run wrote down.

Imports no torch: a run's folder is examined without.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vitscope.doctor.finding import Change
from vitscope.doctor.thresholds.settings import (
    MODEST_HEAD,
    MODEST_HEAD_SURE,
    SHRINK,
    SMALL_HEAD,
    SMALL_HEAD_SURE,
    STRONG_DECAY,
)
from vitscope.train.guide import HEAD_DIM

STEPS = 100
COUPLED = ("adam", "sgd")
"""Optimisers that add decay to the gradient."""


def decay_numbers(decay: float, lr: float, optimizer: str) -> dict[str, Any]:
    taken = 1 - max(0.0, 1 - lr * decay) ** STEPS
    usual = 1e-4 if optimizer in COUPLED else 0.05
    return {"decay": decay, "lr": lr, "taken": taken, "steps": STEPS, "usual": usual}


def is_eating(numbers: Mapping[str, Any]) -> bool:
    """By the settings' numbers alone."""
    return numbers["decay"] >= STRONG_DECAY and numbers["taken"] >= SHRINK


def head_numbers(width: int, heads: int, dim: int | None = None) -> dict[str, int]:
    """`dim`: of a head, where it is set and does not follow from the width."""
    if dim is not None:
        return {"dim": dim, "heads": heads, "better_dim": int(HEAD_DIM[0])}
    numbers = {"dim": width // heads, "width": width, "heads": heads}
    better = _better_heads(width)
    return numbers | ({"better": better} if better < heads else {"wider": heads * int(HEAD_DIM[0])})


def head_changes(numbers: dict[str, int]) -> tuple[Change, ...]:
    settings = {"better_dim": "model.head_dim", "better": "model.num_heads", "wider": "model.embed_dim"}
    return tuple(Change(setting, numbers[key]) for key, setting in settings.items() if key in numbers)


def head_sure(dim: int) -> float | None:
    """How sure it is that heads of so many numbers do harm; None where they do not."""
    if dim > MODEST_HEAD:
        return None
    return SMALL_HEAD_SURE if dim <= SMALL_HEAD else MODEST_HEAD_SURE


def _better_heads(width: int) -> int:
    """The most heads that divide the width and have at least the guide's least width each."""
    fits = [heads for heads in range(1, width + 1) if width % heads == 0 and width // heads >= HEAD_DIM[0]]
    return max(fits, default=1)


def patch_numbers(img_size: tuple[int, int], patch_size: tuple[int, int]) -> dict[str, int]:
    (height, width), (down, across) = img_size, patch_size
    return {
        "patch": down,
        "height": height,
        "width": width,
        "tokens": (height // down) * (width // across),
        "pixels": down * across,
        "better": _better_patch(height, width),
    }


def _better_patch(height: int, width: int) -> int:
    """The largest patch that cuts the picture evenly into 64 or more, as 4 does 32 x 32."""
    fits = [side for side in range(1, min(height, width) + 1) if height % side == 0 and width % side == 0]
    return max((side for side in fits if (height // side) * (width // side) >= 64), default=1)
