"""Modes to look at a network in: nothing left to chance, or only chance."""

from __future__ import annotations

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from vitscope.doctor.anatomy import is_drop

RATES = ("p", "rate", "drop_prob", "drop_rate")


def train_without_chance(model: nn.Module) -> None:
    """Trains, but leaves nothing out, as far as modules say so (a model may still draw inside a function)."""
    model.train()
    for module in model.modules():
        if is_drop(module):
            module.eval()


def train_with_still_norms(model: nn.Module) -> None:
    """Leaves out by chance, but BatchNorm answers as in evaluation and does not learn from what it sees."""
    model.train()
    for module in model.modules():
        if isinstance(module, _BatchNorm):
            module.eval()


def is_batch_norm(module: nn.Module) -> bool:
    return isinstance(module, _BatchNorm)


def drop_rates(module: nn.Module) -> list[float]:
    """What it would leave out while training: a drop layer's rate, or that of attention which draws in a function."""
    if is_drop(module):
        return [value for name in RATES if (value := _rate(getattr(module, name, None))) is not None]
    named = ((name, _rate(value)) for name, value in vars(module).items() if "drop" in name)
    return [value for _, value in named if value is not None]


def _rate(value: object) -> float | None:
    return value if isinstance(value, float) and 0 < value <= 1 else None
