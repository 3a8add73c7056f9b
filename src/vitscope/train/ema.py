"""A running mean of the weights (Polyak averaging), which often predicts better than the last weights do.

mean <- mean + (1 - d) (weights - mean) after every update; d is the decay, and at first no more than (1 + n) / (10 + n)
after n updates, so that the random beginning is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from vitscope.train.shards import copy_into, local
from vitscope.train.state import TrainState


class Ema:
    """A hook after the step. Running means of BatchNorm are averaged too; counters are copied. Of a sharded model each
    process averages its part."""

    name = "ema"

    def __init__(self, model: nn.Module, decay: float, *, warmup: bool = True) -> None:
        self.decay, self.warmup = decay, warmup
        self.live: dict[str, Tensor] = {name: value.detach() for name, value in model.state_dict().items()}
        self.mean: dict[str, Tensor] = {name: value.clone() for name, value in self.live.items()}
        self._floats = [name for name, value in self.live.items() if value.is_floating_point()]
        self._others = [name for name in self.live if name not in set(self._floats)]

    def __call__(self, state: TrainState) -> None:
        """No host sync; nothing where the step was skipped."""
        updates = state.updates.to(torch.float32)  # this one included
        decay = torch.full_like(updates, self.decay)
        if self.warmup:
            decay = torch.minimum(decay, (1 + updates) / (10 + updates))
        weight = (1 - decay) * (state.skipped == 0)
        means = [local(self.mean[name]) for name in self._floats]
        moves = torch._foreach_sub([local(self.live[name]) for name in self._floats], means)  # pyright: ignore[reportPrivateImportUsage]
        torch._foreach_mul_(moves, weight)  # pyright: ignore[reportPrivateImportUsage]
        torch._foreach_add_(means, moves)  # pyright: ignore[reportPrivateImportUsage]
        for name in self._others:
            self.mean[name].copy_(self.live[name])

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Let the model have the mean for a while. The two change places, so that no third copy needs memory."""
        _exchange(self.live, self.mean)
        try:
            yield
        finally:
            _exchange(self.live, self.mean)

    def state_dict(self) -> dict[str, Tensor]:
        return self.mean

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        _copy(self.mean, state)


@torch.no_grad()
def _exchange(some: dict[str, Tensor], others: dict[str, Tensor]) -> None:
    for name in some:
        value, other = local(some[name]), local(others[name])
        own = value.clone()
        value.copy_(other)
        other.copy_(own)


@torch.no_grad()
def _copy(to: dict[str, Tensor], values: dict[str, Tensor]) -> None:
    for name, value in to.items():
        copy_into(value, values[name])
