"""Take a recorded bad step again: the run's settings make the batch, the record holds the weights."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from vitscope.core.config import updated
from vitscope.core.device import pick_device
from vitscope.core.errors import VitscopeError
from vitscope.core.run_layout import CONFIG
from vitscope.core.seed import preserved_rng
from vitscope.data.dataset import open_dataset
from vitscope.data.order import Lane
from vitscope.train.bad_step import Replay, read_bad_step, take_again
from vitscope.train.config import TrainConfig
from vitscope.train.config.read import read_train_config
from vitscope.train.launch import seed_step
from vitscope.train.precision import using_precision
from vitscope.train.setup import lay_out, make_state, settle


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
    bench = lay_out(settle(config, dataset), dataset, pick_device(device or config.loop.device))
    parts, steps_per_epoch = [], 1
    for rank in range(recorded["world"]):
        loader = bench.loader("train", training=True, say=_unheard, lane=Lane(rank, recorded["world"]))
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
        state, objective = make_state(bench, steps_per_epoch, _unheard, resumes=True)
        return take_again(place, state, parts, objective, partial(seed_step, recorded["seed"]))


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
