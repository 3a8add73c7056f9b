"""A step that was not finite, kept so that it can be taken again and looked into.

diagnostics/bad-step-000123/
    step.json           where it was (seed, epoch, batch), by how many processes, and what came out
    model.safetensors   the weights it was computed with: a bad step changes none (on a GPU, where the host looks every
                        `log_every` steps, those of up to as many steps later)

The batch is not stored: it is a function of (seed, epoch, batch), each process's part of it, and is made again.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save
from torch import Tensor

from vitscope.core import strict_json
from vitscope.core.errors import VitscopeError
from vitscope.core.files import write_atomically, write_json
from vitscope.train.first_bad_op import BadOperation, FirstBadOperation
from vitscope.train.precision import autocast
from vitscope.train.state import TrainState
from vitscope.train.step import Objective

MOST_RECORDS = 5
"""A run that skips a step now and then must not fill the disk."""


@dataclass(frozen=True)
class Replay:
    """What taking a bad step again shows."""

    loss: float
    grad_norm: float
    first_bad_module: str | None
    """The first module, in the order of the forward pass, whose output is not finite."""
    bad_gradients: list[str]
    """Parameters whose gradient is not finite."""
    recorded: dict[str, Any]
    """What was written down when it happened."""
    operation: BadOperation | None = None
    """The first operation that made something not finite of what was, forward or backward, where it can be seen."""
    bad_pictures: list[int] = field(default_factory=list)
    """Places in the batch of pictures that are not finite before any layer has seen them."""

    @property
    def is_bad(self) -> bool:
        return self.first_bad_module is not None or bool(self.bad_gradients) or not torch.tensor(self.loss).isfinite()


def record_bad_step(
    folder: Path,
    state: TrainState,
    row: dict[str, Any],
    *,
    seed: int,
    epoch: int,
    batch: int,
    weights: Mapping[str, Tensor] | None = None,
) -> Path | None:
    """Write it down; None when there are enough already. `weights` are the model's, where it has only a part of them
    itself."""
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / f"bad-step-{row['step']:06d}"
    if place.exists():
        shutil.rmtree(place)  # of steps that were taken back
    if len(list(folder.glob("bad-step-*"))) >= MOST_RECORDS:
        return None
    place.mkdir()
    weights = state.model.state_dict() if weights is None else weights
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
    are_finite = all(bool(tensor.isfinite().all()) for tensor in tensors.values() if tensor.is_floating_point())
    if are_finite:
        write_atomically(place / "model.safetensors", save(tensors))
    write_json(
        place / "step.json",
        {
            **row,
            "seed": seed,
            "epoch": epoch,  # from 0, as the loader counts; the row's counts from 1
            "batch": batch,
            "micro_batch": state.micro_batch,
            "world": state.processes.world,
            "weights_are_finite": are_finite,
        },
    )
    return place


def read_bad_step(place: str | Path) -> dict[str, Any]:
    path = Path(place) / "step.json"
    try:
        recorded = strict_json.decode(json.loads(path.read_text()))
    except (OSError, ValueError) as error:
        if not Path(place).exists():
            why = f"there is no '{place}'"
        elif isinstance(error, FileNotFoundError | NotADirectoryError):
            why = f"'{place}' is not the record of a bad step: it has no step.json"
        else:
            why = f"'{place}' is not the record of a bad step: {getattr(error, 'strerror', None) or error}"
        raise VitscopeError(why, fix="give a diagnostics/bad-step-* folder of a run") from None
    return {"world": 1, **recorded}  # which older records do not say


def take_again(
    place: str | Path,
    state: TrainState,
    parts: Sequence[tuple[Tensor, Tensor]],
    objective: Objective,
    seed_step: Callable[[int, int, int], None],
) -> Replay:
    """Forward and backward once more, with the recorded weights, dropout included; nothing is updated. `parts` are the
    images and labels of each process, by its rank; `seed_step` is given (epoch, batch, rank)."""
    recorded = read_bad_step(place)
    weights = Path(place) / "model.safetensors"
    if not weights.exists():
        raise VitscopeError("the weights themselves were not finite, and so were not kept", where=str(place))
    state.model.load_state_dict(load_file(weights))
    total = torch.zeros((), device=state.device)
    pictures = sum(len(images) for images, _ in parts)
    watch = FirstBadOperation(state.model)
    with watch:
        for rank, (images, labels) in enumerate(parts):
            micro_batch = recorded["micro_batch"] or len(images)
            seed_step(recorded["epoch"], recorded["batch"], rank)
            for x, y in zip(images.split(micro_batch), labels.split(micro_batch), strict=True):
                with autocast(state.device, state.dtype):
                    loss, _ = objective(x, y)
                (loss * (len(x) / pictures)).backward()
                total += loss.detach() * (len(x) / pictures)
    grads = {name: value.grad for name, value in state.model.named_parameters() if value.grad is not None}
    bad = [name for name, grad in grads.items() if not bool(grad.isfinite().all())]
    norm = float(torch.nn.utils.get_total_norm(list(grads.values())))
    state.optimizer.zero_grad()
    together = torch.cat([images.flatten(1).isfinite().all(1) for images, _ in parts])
    return Replay(
        float(total),
        norm,
        watch.first_bad_module,
        bad,
        recorded,
        operation=watch.found(),
        bad_pictures=(~together).nonzero().flatten().tolist(),
    )
