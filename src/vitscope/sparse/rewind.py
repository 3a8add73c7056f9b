"""The weights a round goes back to: copied once, hashed, and proved unchanged after every round."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from vitscope.core.errors import ConfigError, VitscopeError, expected
from vitscope.core.files import write_atomically
from vitscope.train.work import Work
from vitscope.weights.folder import unwrapped

HASH = "sha256"


class RewindPoint:
    """Weights in memory of their own, on the CPU. Whoever changes them all the same is found out by `check`."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        self.weights = {
            name: tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
            for name, tensor in weights.items()
        }
        self.hash = hash_weights(self.weights)

    @classmethod
    def of(cls, model: nn.Module) -> RewindPoint:
        return cls(unwrapped(model).state_dict())

    def check(self) -> None:
        """Refuse to go on with weights that are no longer those that were kept."""
        found = hash_weights(self.weights)
        if found != self.hash:
            raise VitscopeError(
                f"the rewind point has changed: its hash was {self.hash[:12]} and is {found[:12]}",
                where="RewindPoint",
                fix="something writes into the kept weights: take the point anew, or load it from its file",
            )

    @torch.no_grad()
    def restore(self, model: nn.Module) -> None:
        """Copy the weights into a model, in the memory it has."""
        self.check()
        unwrapped(model).load_state_dict(self.weights, strict=True)

    def save(self, path: str | Path) -> None:
        self.check()
        write_atomically(Path(path), save(self.weights, metadata={HASH: self.hash, "format": "pt"}))

    @classmethod
    def load(cls, path: str | Path) -> RewindPoint:
        try:
            with safe_open(path, framework="pt") as file:
                point = cls({name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118
                kept = (file.metadata() or {}).get(HASH)
        except (OSError, SafetensorError) as error:
            raise VitscopeError(f"the rewind point cannot be read: {error}", where=str(path)) from error
        if kept != point.hash:
            raise VitscopeError(
                f"the rewind point is not the one that was saved: {point.hash[:12]} instead of {str(kept)[:12]}",
                where=str(path),
                fix="begin the rounds anew: a damaged point would falsify all of them",
            )
        return point


class RewindKeeper:
    """Keeps the weights of one step in a file while a run goes by: `fit(..., between_steps=[keeper])`.

    A run that comes by again (gone back, or resumed from before) keeps them anew: the point is of the course that the
    run ends with. What a run begins with is no step of it: take `RewindPoint.of(model)`.
    """

    def __init__(self, path: str | Path, *, step: int | None = None, epoch: int | None = None) -> None:
        """Of one step, or of the end of one epoch."""
        given = step if epoch is None else epoch
        if given is None or given < 1 or None not in (step, epoch):
            raise ConfigError(
                expected("what to rewind to", "a step or an epoch, 1 or more", f"step {step}, epoch {epoch}"),
                fix="RewindPoint.of(model) for step 0",
            )
        self.path, self.step, self.epoch = Path(path), step, epoch

    def begin(self, work: Work, sample: Callable[[], Any]) -> None:
        """Nothing yet; but how many steps an epoch has is known now."""
        if self.epoch is not None:
            self.step = self.epoch * work.steps_per_epoch

    def see(self, work: Work) -> None:
        if work.step == self.step:
            work.processes.by_first_with(
                work.state.model.state_dict, lambda weights: RewindPoint(weights).save(self.path)
            )


def hash_weights(weights: Mapping[str, Tensor]) -> str:
    """sha256 over names, types, shapes and bytes, whatever the order."""
    mix = hashlib.sha256()
    for name in sorted(weights):
        tensor = weights[name].detach().cpu().contiguous()
        mix.update(f"{name}\n{tensor.dtype} {tuple(tensor.shape)}\n".encode())
        mix.update(memoryview(tensor.reshape(-1).view(torch.uint8).numpy()))  # pyright: ignore[reportArgumentType]
    return mix.hexdigest()
