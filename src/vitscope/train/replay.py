"""Take a recorded bad step again: the run's settings make the batch, the record holds the weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from vitscope.core.config import updated
from vitscope.core.device import pick_device
from vitscope.core.errors import VitscopeError
from vitscope.core.run_layout import CONFIG
from vitscope.core.seed import preserved_rng
from vitscope.data.dataset import open_dataset
from vitscope.data.order import Lane
from vitscope.train.bad_step import read_bad_step
from vitscope.train.basis import lay_out, settle
from vitscope.train.config import TrainConfig
from vitscope.train.config.read import read_train_config
from vitscope.train.first_bad_op import BadOperation, FirstBadOperation
from vitscope.train.first_state import make_state
from vitscope.train.launch import seed_step
from vitscope.train.precision import autocast, using_precision
from vitscope.train.state import TrainState
from vitscope.train.step import LossAndLogits


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


def replay_bad_step(folder: str | Path, *, device: str | None = None) -> Replay:
    """What a step recorded in `runs/NAME/diagnostics/bad-step-000123` does when it is taken again: same weights, same
    pictures, same dropout, nothing updated. `device` is by default the run's; another one rounds otherwise. A step of
    several processes is taken again by this one, part by part.

    Only what the settings say is repeated: an objective or network changed by code of one's own must be changed again.
    """
    place = Path(folder).expanduser().resolve()
    recorded = read_bad_step(place)
    config = _settings_of(place)
    dataset = open_dataset(config.data)
    basis = lay_out(settle(config, dataset), dataset, pick_device(device or config.loop.device))
    parts, steps_per_epoch = [], 1
    for rank in range(recorded["world"]):
        loader = basis.loader("train", training=True, say=_unheard, lane=Lane(rank, recorded["world"]))
        try:
            batch = next(iter(loader.epoch(recorded["epoch"], recorded["batch"])), None)
        finally:
            loader.close()
        if batch is None:
            raise VitscopeError(
                f"batch {recorded['batch']} of epoch {recorded['epoch']} cannot be made again",
                where=str(place),
                fix="give the pictures the run had",
            )
        parts.append((batch.images, batch.labels))
        steps_per_epoch = loader.num_batches
    with preserved_rng(), using_precision(config.precision):
        state, objective = make_state(basis, steps_per_epoch, _unheard, resumes=True)
        return take_again(place, state, parts, objective, partial(seed_step, recorded["seed"]))


def take_again(
    place: str | Path,
    state: TrainState,
    parts: Sequence[tuple[Tensor, Tensor]],
    objective: LossAndLogits,
    seed_step: Callable[[int, int, int], None],
) -> Replay:
    """Forward and backward once more, with the recorded weights, dropout included; nothing is updated. `parts` are the
    images and labels of each process, by its rank; `seed_step` is given (epoch, batch, rank)."""
    recorded = read_bad_step(place)
    weights = Path(place) / "model.safetensors"
    if not weights.exists():
        raise VitscopeError(
            "the weights themselves were not finite, and so were not kept",
            where=str(place),
            fix="replay an earlier bad step of this run, or train again from its last checkpoint with --monitor, which "
            "names the first layer whose values are not finite",
        )
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


def _settings_of(place: Path) -> TrainConfig:
    run = place.parent.parent
    if not (run / CONFIG).is_file():
        raise VitscopeError(
            f"'{place}' lies in no run folder",
            where=f"looked for {run / CONFIG}",
            fix="leave the record where the run wrote it, in diagnostics/",
        )
    config = read_train_config(run / CONFIG)
    # The record's weights take the place of whatever the run began with.
    return updated(config, checkpoint=updated(config.checkpoint, init_from=None))


def _unheard(text: str) -> None:
    """The run has said it all before."""
