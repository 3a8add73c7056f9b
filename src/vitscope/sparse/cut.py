"""A run without its doomed units: the large network's checkpoint, cut, is the first one of the small network."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitscope.core.config import updated
from vitscope.core.files import write_json
from vitscope.core.folder_lock import FolderLock
from vitscope.core.run_folder import RunFolder
from vitscope.core.run_layout import CHECKPOINTS
from vitscope.models.build import build_model
from vitscope.models.model import VisionModel
from vitscope.sparse.ground import Ground
from vitscope.sparse.growth import GrowthHook, doomed_share
from vitscope.sparse.surgery import cut_tensors, shrink, slice_optimizer_state
from vitscope.sparse.units import Units
from vitscope.train.checkpoints.store import Checkpoint, CheckpointError, Checkpoints
from vitscope.train.config import TrainConfig, named_model
from vitscope.train.course import Course
from vitscope.train.ema import Ema

FIGURES = "cut.json"


@dataclass(frozen=True)
class Cut:
    """What was cut, and what that did."""

    config: TrainConfig
    """Of the small network's run."""
    before_val_accuracy: float
    after_val_accuracy: float
    doomed_share: float
    """max |D| / median |kept|."""
    moved_logits: float
    """The largest change of a logit, over the largest logit."""
    lambda_end: float
    """As the last step before the cut logged it."""


def is_at(run: Path, step: int) -> bool:
    """Whether a run has come to this step, and everything of it is saved."""
    newest = Checkpoints(run / CHECKPOINTS, keep=1).newest()
    return newest is not None and newest.step >= step


def cut_run(ground: Ground, config: TrainConfig, large: Path, small: Path, here: Units, after: Units) -> Cut:
    """Make the run `small` from the newest checkpoint of `large`: `fit(cut.config, out=small, resume=True)` goes on
    with the same schedule, at the same step. Done once: all of it is there, or nothing."""
    model = build_model(config.model.bare)
    small_config = _config(config, shrink(model, after))
    figures = small.parent / FIGURES
    if not small.exists():
        checkpoint = Checkpoints(large / CHECKPOINTS, keep=1).newest()
        if checkpoint is None:
            raise CheckpointError("the run that was to be cut has no checkpoint", where=str(large))
        found = _measured(ground, model, checkpoint, config, here, after)
        _keep_figures(figures, {**found, "lambda_end": _last_lambda(large)})
        _write_run(small, checkpoint, model, small_config, after)
    return Cut(small_config, **json.loads(figures.read_text(encoding="utf-8")))


def _config(config: TrainConfig, small: VisionModel) -> TrainConfig:
    return updated(
        config,
        model=named_model(config.model.name, small.config),
        checkpoint=updated(config.checkpoint, init_from=None),
    )


def _measured(
    ground: Ground, model: VisionModel, checkpoint: Checkpoint, config: TrainConfig, here: Units, after: Units
) -> dict[str, float]:
    """By the weights as they would be used (the running mean, where there is one); D by those that were drawn to 0."""
    used = checkpoint.trainer()["hooks"][Ema.name] if config.loop.ema_decay else checkpoint.model()
    model.load_state_dict(dict(used))
    before, cut = ground.judge(model), ground.judge(shrink(model, after))
    model.load_state_dict(checkpoint.model())
    return {
        "before_val_accuracy": before.accuracy,
        "after_val_accuracy": cut.accuracy,
        "doomed_share": doomed_share(model, here.without(after)),
        "moved_logits": _moved(model, shrink(model, after), ground.some_images()),
    }


def _last_lambda(run: Path) -> float:
    rows = RunFolder.open(run).metrics.read()
    return float([row["sparse/lambda"] for row in rows if "sparse/lambda" in row][-1])


@torch.no_grad()
def _moved(large: VisionModel, small: VisionModel, images: Tensor) -> float:
    was, now = large.eval()(images), small.eval()(images)
    return float((now - was).abs().max() / was.abs().max())


def _write_run(place: Path, checkpoint: Checkpoint, model: VisionModel, config: TrainConfig, units: Units) -> None:
    """Under a hidden name first: a run without its checkpoint would begin anew."""
    hidden = place.with_name(f".{place.name}")
    shutil.rmtree(hidden, ignore_errors=True)
    lock = FolderLock()
    try:
        run = RunFolder.create(hidden, name=place.name, lock=lock)
        run.save_config(config)
        weights = cut_tensors(model, checkpoint.model(), units)
        trainer = _cut_trainer(model, checkpoint.trainer(), units)
        meta = {key: checkpoint.meta[key] for key in ("epoch", "batch", "split_hash", "steps_per_epoch")}
        Checkpoints(run.checkpoints, keep=config.checkpoint.keep).save(checkpoint.step, weights, trainer, meta)
    finally:
        lock.release()
    hidden.replace(place)


def _cut_trainer(model: VisionModel, trainer: dict[str, Any], units: Units) -> dict[str, Any]:
    """What the small network's run remembers: nothing of the growth, and no best of the large network."""
    state = {**trainer["state"], "optimizer": slice_optimizer_state(model, trainer["state"]["optimizer"], units)}
    hooks: Mapping[str, Any] = {
        name: cut_tensors(model, held, units) if name == Ema.name else held
        for name, held in trainer["hooks"].items()
        if name != GrowthHook.name
    }
    course = Course()
    course.load(trainer["course"])
    course.best_so_far = None, None, None
    course.reference, course.waited = None, 0
    return {**trainer, "state": state, "hooks": dict(hooks), "course": dataclasses.asdict(course)}


def _keep_figures(path: Path, figures: Mapping[str, float]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, dict(figures))
