"""Going on with a run: from which checkpoint, and what changed settings mean for what it holds."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitscope.core.errors import DataError, UsageError
from vitscope.core.folder_lock import FolderLock
from vitscope.core.run_folder import RunFolder
from vitscope.core.yaml import load_yaml
from vitscope.data.config import DataConfig
from vitscope.data.dataset import Dataset, open_dataset
from vitscope.train.back import restore, stand_by_best
from vitscope.train.changes import changes
from vitscope.train.checkpoints.store import Checkpoint, CheckpointError, Checkpoints
from vitscope.train.config import TrainConfig
from vitscope.train.optim.schedule import Plateau, lr_table
from vitscope.train.work import Work, say

log = logging.getLogger("vitscope")


def run_folder(
    config: TrainConfig, out: str | Path | None, name: str | None, lock: FolderLock, *, resume: bool, overwrite: bool
) -> tuple[RunFolder, bool]:
    """The folder, and whether there is something in it to go on from."""
    if not resume:
        data = Path(config.data.name).name.partition(":")[0]
        if overwrite and out is not None:
            refuse_to_replace_sources(config, Path(out).expanduser())
        name = name or f"{data}-{config.model.name}"
        return RunFolder.create(out, name=name, overwrite=overwrite, lock=lock), False
    if out is None:
        raise UsageError("nothing to resume: no run is named", where="--resume", fix="name the run folder with --out")
    place = Path(out).expanduser()
    if place.exists() and not place.is_dir():
        raise UsageError(f"'{place}' is not a folder", where="--resume", fix="give the folder of a run as --out")
    if not place.exists() or not any(place.iterdir()):
        return RunFolder.create(out, name=name or "run", lock=lock), False
    run = RunFolder.open(place)
    pid = (run.read_status() or {}).get("pid")
    if run.is_alive() and pid != os.getpid():  # the same number after a restart of a container: it is free
        raise UsageError(f"process {pid} is writing to {place}", where="--resume", fix="wait for it, or stop it first")
    lock.take(place)
    return run, True


@dataclass(frozen=True)
class Beginning:
    """What a run begins with. Plain data: processes tell it each other."""

    place: Path
    """The run's folder."""
    goes_on: bool = False
    """Whether there is something in it to go on from."""
    is_over: bool = False
    """Whether that is over for good."""
    checkpoint: Checkpoint | None = None
    """The one to go on from."""


def begin(
    config: TrainConfig,
    dataset: Dataset,
    out: str | Path | None,
    name: str | None,
    lock: FolderLock,
    *,
    resume: bool,
    resume_from: str | Path | None,
    overwrite: bool,
) -> Beginning:
    """Of an existing run nothing is changed: whatever is refused here leaves it as it was."""
    run, goes_on = run_folder(config, out, name, lock, resume=resume or resume_from is not None, overwrite=overwrite)
    if not goes_on:
        return Beginning(run.path)
    before = settings_until_now(run, config)
    changes(before, config)
    if resume_from is None and is_over_for_good(run, before, config):
        return Beginning(run.path, goes_on=True, is_over=True)
    return Beginning(run.path, goes_on=True, checkpoint=checkpoint_to_resume(run, resume_from, dataset))


def refuse_to_replace_sources(config: TrainConfig, out: Path) -> None:
    """What is begun anew must not need what it replaces."""
    needed = {"--from": config.checkpoint.init_from, "--teacher": config.loss.teacher, "--data": config.data.name}
    for flag, source in needed.items():
        if source is not None and Path(source).expanduser().resolve().is_relative_to(out.resolve()):
            raise UsageError(
                f"'{source}' is in what would be replaced", where=f"{flag}, --overwrite", fix="another --out"
            )


def trainable(data: DataConfig) -> Dataset:
    dataset = open_dataset(data)
    dataset.require_trainable()
    return dataset


def settings_until_now(run: RunFolder, config: TrainConfig) -> TrainConfig:
    return load_yaml(TrainConfig, run.config_path) if run.config_path.exists() else config


def is_over_for_good(run: RunFolder, before: TrainConfig, config: TrainConfig) -> bool:
    """A finished run, unless the settings now let it train longer."""
    if (run.read_status() or {}).get("state") != "finished":
        return False
    longer = config.loop.epochs > before.loop.epochs
    more_patient = before.loop.early_stop and _patience(config) != _patience(before)
    return not (longer or more_patient)


def checkpoint_to_resume(run: RunFolder, wish: str | Path | None, dataset: Dataset) -> Checkpoint | None:
    """The one asked for, or the newest good one. Reads only: whatever is refused here leaves the run as it was."""
    store = Checkpoints(run.checkpoints, keep=1)
    checkpoint = store.newest() if wish is None else store.open(wish)
    if checkpoint is None:
        _refuse_to_begin_anew(run)
        return None
    if checkpoint.path.resolve().parent != run.checkpoints.resolve():
        raise UsageError(
            f"'{wish}' is a checkpoint of another run",
            where=f"--resume-from, in {run.path}",
            fix="resume that run, or begin a new one with its weights: --from RUN",
        )
    if checkpoint.meta.get("split_hash") != dataset.splits.hash:
        raise DataError(
            "the data are not those the run began with: pictures, labels or the split differ",
            where=str(checkpoint.path),
            fix="give the same data, or start a new run",
        )
    return checkpoint


def epochs_done(checkpoint: Checkpoint | None) -> float:
    """How much of a run lies behind a checkpoint; an epoch under way counts by its steps."""
    if checkpoint is None:
        return 0.0
    steps = checkpoint.meta.get("steps_per_epoch")
    return checkpoint.meta.get("epoch", 0) + (checkpoint.meta.get("batch", 0) / steps if steps else 0)


def _refuse_to_begin_anew(run: RunFolder) -> None:
    """A run that has come somewhere is not begun at step 0 because its checkpoints are lost."""
    if run.model.exists() or any("train/epoch_loss" in row for row in run.metrics.read()):
        raise CheckpointError(
            "there is no checkpoint that can be used, though the run has trained: they are damaged or were removed",
            where=str(run.checkpoints),
            fix=f"bring them back, or begin a new run with its best weights: --from {run.path} --out ANOTHER",
        )


def go_on(work: Work, checkpoint: Checkpoint, before: TrainConfig, *, chosen: bool) -> None:
    """Everything as it was after the checkpoint's step, and what the settings of now make of it. `chosen`: the
    checkpoint was named by the user, and what came after it is given up."""
    config, course, state = work.config, work.course, work.state
    _refuse_other_steps(work, checkpoint)
    forgotten = work.processes.after_first(lambda: restore(work, checkpoint))
    given_up = work.processes.by_first(lambda: work.checkpoints.drop_after(checkpoint.step))
    stand_by_best(work)
    factor = float(state.lr_factor)
    if config.loop.micro_batch != before.loop.micro_batch:
        state.micro_batch = config.loop.micro_batch
    if config.schedule != before.schedule:
        work.plateau = Plateau(config.schedule, lr=config.lr)  # what plateaus of another one have made of it is void
    if config.lr != before.lr:  # the rate is what was asked for, and has not been gone back from yet
        course.went_back = 0
    if (config.schedule, config.lr) != (before.schedule, before.lr):
        state.lr_factor.fill_(work.plateau.factor * 0.5**course.went_back)
    if (config.loop.monitor, config.loop.monitor_mode) != (before.loop.monitor, before.loop.monitor_mode):
        _measure_best_anew(work)
    if config.loop.epochs != before.loop.epochs or _patience(config) != _patience(before):
        course.is_over = course.epoch >= config.loop.epochs or course.has_waited(config.loop)
    say(work, f"resuming after step {work.step} (epoch {course.epoch + 1}, batch {course.batch})")
    if config.loop.epochs < before.loop.epochs and course.epoch >= config.loop.epochs:
        say(work, f"{course.epoch} epochs are done and {config.loop.epochs} are asked for: nothing is left to train")
    _say_lr(work, before, factor)
    if given_up and chosen:
        say(work, f"the checkpoints after it are given up: {', '.join(given_up)}")
    if forgotten and work.processes.is_first:
        log.warning("what the hooks %s remembered is not used any more", ", ".join(forgotten))


def is_to_come(work: Work, row: dict[str, Any]) -> bool:
    """Whether a row tells of a step, of the end of an epoch or of a test that the run as it stands has still before it.
    A kill can leave an epoch's row behind whose checkpoint was not written any more."""
    is_epoch, is_test = "train/epoch_loss" in row, "test/accuracy" in row
    ahead = (is_epoch and row["epoch"] > work.course.epoch) or (is_test and not work.course.is_over)
    return ahead or row["step"] > work.step


def _refuse_other_steps(work: Work, checkpoint: Checkpoint) -> None:
    """Steps are counted by epochs: where an epoch has another number of them, the place in the data is lost."""
    was = checkpoint.meta.get("steps_per_epoch", work.steps_per_epoch)
    if was != work.steps_per_epoch:
        raise DataError(
            f"an epoch had {was:,} steps when the run began and has {work.steps_per_epoch:,} now: pictures that cannot "
            "be read leave other gaps with this loader",
            where=f"{checkpoint.path}; now: {work.launcher.loader.why}",
            fix="give the loader the run began with (its train.log names it): --data.loader worker, or device",
        )


def _measure_best_anew(work: Work) -> None:
    """The best weights so far stay those they are; from now on they are held against others by another metric."""
    course, monitor = work.course, work.config.loop.monitor
    rows = [row for row in work.run.metrics.read() if row["step"] == course.best_step and monitor in row]
    course.best = course.reference = rows[-1][monitor] if rows else None
    course.waited = 0
    shown = "unknown" if course.best is None else f"{course.best:.5g}"
    say(work, f"best is measured by {monitor} now: {shown} so far")


def _say_lr(work: Work, before: TrainConfig, factor_before: float) -> None:
    """A schedule laid out anew may jump; nobody shall find that out from a curve."""
    config, state = work.config, work.state
    table = lr_table(before.schedule, lr=before.lr, steps_per_epoch=work.steps_per_epoch, epochs=before.loop.epochs)
    done = int(state.updates)
    factor = float(state.lr_factor)
    last = float(table[min(max(done - 1, 0), len(table) - 1)]) * factor_before
    now = float(state.lr_table[min(done, len(state.lr_table) - 1)]) * factor
    if (config.schedule, config.lr, config.loop.epochs) != (before.schedule, before.lr, before.loop.epochs):
        say(work, f"the schedule is laid out anew: lr was {last:.3g} before, and is {now:.3g} now")
    if factor != 1.0:
        say(work, f"lr is multiplied by {factor:g}, for plateaus and for going back")


def _patience(config: TrainConfig) -> tuple[bool, int, float]:
    return config.loop.early_stop, config.loop.patience, config.loop.min_delta
