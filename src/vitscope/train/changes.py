"""Resuming with other settings: what may change is applied and said, what would make it another run is refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from vitscope.core.config import to_dict
from vitscope.core.errors import ConfigError
from vitscope.train.config import TrainConfig
from vitscope.train.processes import Processes

STRUCTURAL = (
    "model.",
    "data.name",
    "data.image_column",
    "data.label_column",
    "data.split_seed",
    "data.val_share",
    "data.pool_shares",
    "data.train_limit",
    "data.batch_size",  # the place in the epoch is counted in batches
    "data.sampling",
    "data.repeats",
    "data.normalisation",
    "data.mean",
    "data.std",
    "data.resize",
    "data.crop_share",
    "data.interpolation",
    "data.resizer",
    "optim.name",
    "optim.freeze",
    "loop.seed",
    "loop.data_seed",
    "loop.ema_decay",
    "checkpoint.init_from",
)
"""Beginnings of the settings that weights, optimiser state or the place in the data depend on. A model's dropout is
among them, though no weight depends on it: the network is built once, from the settings of the run."""


OF_THE_MACHINE = ("data.name", "data.workers", "data.cache", "loop.threads", "checkpoint.init_from", "loss.teacher")
"""Where pictures and weights lie and what reads them: machines may differ in it, and train one model all the same."""


def changes(old: TrainConfig, new: TrainConfig) -> list[str]:
    """`key: old -> new` for each setting that differs. Refuses those a run cannot go on with."""
    found = list(_differences(to_dict(old), to_dict(new)))
    for key, before, after in found:
        begins_or_ends = key == "optim.momentum" and new.optim.name == "sgd" and 0.0 in (before, after)
        if begins_or_ends or key.startswith(STRUCTURAL):
            raise ConfigError(
                f"{key} cannot {'begin or end' if begins_or_ends else 'change'} within a run: it is {before!r}, "
                f"received {after!r}",
                where="--resume",
                fix=f"leave it at {before!r}, or start a new run with another --out (its weights: --from RUN)",
            )
    return [f"{key}: {before!r} -> {after!r}" for key, before, after in found]


def refuse_other_settings(config: TrainConfig, processes: Processes) -> None:
    """On several machines the command is typed more than once; with unlike settings the processes would average what
    does not belong together."""
    first = processes.of_first(to_dict(config))
    found = [
        f"{key} is {there!r} there, {here!r} here"
        for key, there, here in _differences(first, to_dict(config))
        if key not in OF_THE_MACHINE
    ]
    if found:
        raise ConfigError(
            f"process {processes.rank} was started with other settings than the first: {'; '.join(found)}",
            where="torchrun",
            fix="start all processes with the same command",
        )


def _differences(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    for key in [*old, *(key for key in new if key not in old)]:
        before, after = old.get(key), new.get(key)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            yield from _differences(before, after, f"{prefix}{key}.")
        elif before != after:
            yield f"{prefix}{key}", before, after
