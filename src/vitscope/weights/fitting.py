"""Which of the registered models a bare file of weights is for, by names and shapes alone. No tensor is moved."""

from __future__ import annotations

from typing import Any

import torch

from vitscope.core.errors import VitscopeError
from vitscope.models.build import build_model
from vitscope.models.config import ModelConfig, pair
from vitscope.models.variants import VARIANTS
from vitscope.weights.files import Stored
from vitscope.weights.formats import recognised
from vitscope.weights.match import Format
from vitscope.weights.read import entered, faults, found_in, shapes_of
from vitscope.weights.stored_config import PATCH_FILTER, stored_config


def fitting_models(stored: Stored) -> list[str]:
    """Their names. Those whose picture has the size of the weights' own, or, where none has, those of other sizes."""
    try:
        by = recognised(stored, where="")
    except VitscopeError:
        return []
    same, other = [], []
    for name in VARIANTS:
        config = VARIANTS[name].config
        found = _config_of(stored, config, by)
        if found is not None:
            (same if _size(found) == _size(config) else other).append(name)
    return same or other


def _config_of(stored: Stored, like: ModelConfig, by: Format) -> ModelConfig | None:
    """`like` with the picture, channels and classes of these tensors; None where they are not for its layers."""
    inner: Any = getattr(like, "encoder", like)
    try:
        first = by.reading(stored, like)(f"encoder.{PATCH_FILTER}" if inner is not like else PATCH_FILTER)
        if hasattr(inner, "patch_size") and (first is None or not _is_as_wide(stored, first.theirs, inner.embed_dim)):
            return None  # most are told by this, and need not be built
        found, tensors, heads = found_in(stored, like, by, _hollow)
        config = stored_config(like, shapes_of(tensors), heads=heads, where="")
        if getattr(config, "patch_size", None) != getattr(like, "patch_size", None):
            return None
        with torch.device("meta"):
            model = build_model(config)
        ledger = entered(model, found, tensors, stored, by.left_out(stored, like))
    except (VitscopeError, RuntimeError, IndexError):  # shapes that a match cannot turn, sizes no model can have
        return None
    return None if faults(ledger) else config


def _is_as_wide(stored: Stored, names: tuple[str, ...], width: int) -> bool:
    return all(name in stored and width in stored.shapes[name] for name in names)


def _hollow(stored: Stored, name: str) -> torch.Tensor:
    if not stored.shapes[name]:  # a counter, whose kind its shape does not tell
        return stored[name]
    return torch.empty(stored.shapes[name], device="meta")


def _size(config: ModelConfig) -> tuple[int, int]:
    return pair(getattr(config, "encoder", config).img_size)
