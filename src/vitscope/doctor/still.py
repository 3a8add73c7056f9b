"""A model that answers each picture alike, whatever its owner's step does: nothing is left out by chance, and BatchNorm
keeps to the statistics of the pictures at hand instead of each part's own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from vitscope.doctor.anatomy import is_drop
from vitscope.doctor.modes import RATES, is_batch_norm


@contextlib.contextmanager
def still(model: nn.Module, images: Tensor) -> Iterator[None]:
    kept: list[tuple[nn.Module, str, Any]] = []
    norms = [module for module in model.modules() if is_batch_norm(module)]
    for module in model.modules():
        for name, value in vars(module).items():
            counts = (is_drop(module) and name in RATES) or "drop" in name
            if counts and isinstance(value, float) and value > 0:
                kept.append((module, name, value))
    try:
        for module, name, _ in kept:
            setattr(module, name, 0.0)
        _settle(model, norms, images)
        hooks = [module.register_forward_pre_hook(_as_in_evaluation) for module in norms]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()
    finally:
        for module, name, value in kept:
            setattr(module, name, value)


@torch.no_grad()
def _settle(model: nn.Module, norms: list[nn.Module], images: Tensor) -> None:
    """Running statistics become those of these pictures: an untrained model's are not its own yet."""
    if not norms:
        return
    momenta = [module.momentum for module in norms]
    try:
        model.train()
        for module in norms:
            module.momentum = 1.0  # pyright: ignore
        model(images)
    finally:
        for module, momentum in zip(norms, momenta, strict=True):
            module.momentum = momentum


def _as_in_evaluation(module: nn.Module, _given: Any) -> None:
    module.training = False
