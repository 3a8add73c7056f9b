"""Borrowing a model: in train or eval mode for a while, then every module as it was found."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def in_mode(model: nn.Module, *, training: bool) -> Iterator[None]:
    """Modules are put back one by one: a frozen BatchNorm inside a model that trains stays frozen."""
    found = [(module, module.training) for module in model.modules()]
    model.train(training)
    try:
        yield
    finally:
        for module, was_training in found:
            module.training = was_training
