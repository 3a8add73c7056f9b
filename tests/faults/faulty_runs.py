"""Small runs on the built-in digits in which a chosen step goes wrong, and what is asked of the folders they leave."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from vitscope.core.config import from_dict
from vitscope.train import finish, loop
from vitscope.train.checkpoints.store import Checkpoint, Checkpoints
from vitscope.train.config import TrainConfig
from vitscope.train.launch import Launcher
from vitscope.train.objective import Objective
from vitscope.train.work import Work

BATCHES = 4
"""Steps in an epoch: 1,222 training pictures, 256 at a time."""

VIT: dict[str, Any] = {
    "family": "vit",
    "img_size": 8,
    "patch_size": 2,
    "in_chans": 1,
    "num_classes": 10,
    "embed_dim": 16,
    "depth": 1,
    "num_heads": 2,
    "drop_rate": 0.1,
}
CNN: dict[str, Any] = {"family": "cnn", "img_size": 8, "in_chans": 1, "num_classes": 10, "widths": [4, 8]}


def settings(model: dict[str, Any] | None = None, **sections: dict[str, Any]) -> TrainConfig:
    """Every step is saved and kept, unless told otherwise."""
    start: dict[str, dict[str, Any]] = {
        "data": {"name": "digits", "batch_size": 256, "loader": "device"},
        "schedule": {"name": "constant", "warmup": "0 steps"},
        "loop": {"epochs": 2, "device": "cpu", "ema_decay": 0.9},
        "checkpoint": {"every_steps": 1, "keep": 1000},
    }
    names = {*start, *sections}
    merged = {name: {**start.get(name, {}), **sections.get(name, {})} for name in names}
    return from_dict(TrainConfig, {"model": model or VIT, **merged})


@contextlib.contextmanager
def no_pictures() -> Iterator[None]:
    """Drawing takes longer than these runs do."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(finish, "_draw", lambda *given: None)
        yield


class Faults:
    """Lets the loss of chosen steps go wrong: `faults.at[epoch, batch] = fault`, which is given the loss and the number
    of the part of the batch, and gives the loss that is taken instead. A fault is used `times` times."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at: dict[tuple[int, int], Callable[[Tensor, int], Tensor]] = {}
        self.taken: list[tuple[int, int]] = []
        """Every step that was begun."""
        self.part = 0
        faults, seed_step, call = self, Launcher.seed_step, Objective.__call__

        def noting(launcher: Launcher, epoch: int, batch: int) -> None:
            faults.taken.append((epoch, batch))
            faults.part = 0
            seed_step(launcher, epoch, batch)

        def failing(objective: Objective, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
            loss, logits = call(objective, images, labels)
            fault = faults.at.get(faults.taken[-1])
            faults.part += 1
            return (loss if fault is None else fault(loss, faults.part - 1)), logits

        monkeypatch.setattr(Launcher, "seed_step", noting)
        monkeypatch.setattr(Objective, "__call__", failing)


def nan_loss(loss: Tensor, part: int) -> Tensor:
    return loss * math.nan


def infinite_gradients(loss: Tensor, part: int) -> Tensor:
    """The loss itself stays as it is."""
    return _Steep.apply(loss)  # type: ignore[no-any-return]


def nan_in_part(number: int) -> Callable[[Tensor, int], Tensor]:
    return lambda loss, part: loss * math.nan if part == number else loss


def once(fault: Callable[[Tensor, int], Tensor]) -> Callable[[Tensor, int], Tensor]:
    """The second time the step is taken it goes well."""
    used: list[int] = []

    def first_time(loss: Tensor, part: int) -> Tensor:
        used.append(part)
        return fault(loss, part) if len(used) == 1 else loss

    return first_time


class _Steep(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, loss: Tensor) -> Tensor:
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return grads[0] * math.inf


def stored(run: Path, step: int) -> Checkpoint:
    return Checkpoints(run / "checkpoints", keep=1000).open(f"step-{step:06d}")


def tensors_of(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """All that a step may change: weights, running means, optimiser, running mean of the weights, counters."""
    trainer = checkpoint.trainer()
    parts = {"model": checkpoint.model(), "state": trainer["state"], "hooks": trainer["hooks"]}
    return dict(_leaves(parts, ""))


def _leaves(value: Any, name: str) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        yield name, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, f"{name}/{key}")
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from _leaves(item, f"{name}/{number}")


@contextlib.contextmanager
def states_noted() -> Iterator[dict[int, dict[str, Tensor]]]:
    """What `tensors_of` a checkpoint of each step would be, also of steps of which none is saved."""
    noted: dict[int, dict[str, Tensor]] = {}
    look = loop.look

    def noting(work: Work) -> None:
        look(work)
        hooks = {hook.name: hook.state_dict() for hook in work.after if hasattr(hook, "state_dict")}  # type: ignore[attr-defined]
        parts = {"model": work.state.model.state_dict(), "state": work.state.state_dict(), "hooks": hooks}
        noted[work.step] = {name: tensor.detach().clone() for name, tensor in _leaves(parts, "")}

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(loop, "look", noting)
        yield noted


def differing(first: dict[str, Tensor], second: dict[str, Tensor]) -> list[str]:
    """Names of the tensors that are not the same bit for bit."""
    assert first.keys() == second.keys()
    return [name for name, value in first.items() if _bits(value) != _bits(second[name])]


def _bits(tensor: Tensor) -> bytes:
    return tensor.contiguous().numpy().tobytes()


def require_finite_files(run: Path) -> int:
    """No tensor in any file of a run is NaN or infinite. How many there are."""
    count = 0
    for path in [*run.rglob("*.safetensors"), *run.rglob("*.pt")]:
        read = load_file(path) if path.suffix == ".safetensors" else torch.load(path, weights_only=True)
        for name, tensor in _leaves(read, ""):
            count += 1
            assert bool(torch.isfinite(tensor).all()), f"{path}: {name}"
    assert count, f"no tensors under {run}"
    return count


def rows_of(run: Path, key: str = "train/loss") -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [row for row in rows if key in row]


def final(run: Path) -> dict[str, Tensor]:
    newest = Checkpoints(run / "checkpoints", keep=1000).newest()
    assert newest is not None
    return tensors_of(newest)
