"""Going on with a run: from which checkpoint, and what changed settings mean for what it holds."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

from vitscope.core.errors import DataError, UsageError
from vitscope.core.run_folder import RunFolder
from vitscope.core.yaml import load_yaml
from vitscope.data.config import DataConfig
from vitscope.data.dataset import Dataset, open_dataset
from vitscope.train.changes import changes
from vitscope.train.checkpoints.store import Checkpoint, CheckpointError, Checkpoints
from vitscope.train.config import TrainConfig
from vitscope.train.loop import Work, restore, say
from vitscope.train.optim.schedule import Plateau, lr_table

log = logging.getLogger("vitscope")


def run_folder(
    config: TrainConfig, out: str | Path | None, name: str | None, *, resume: bool, overwrite: bool
) -> tuple[RunFolder, bool]:
    """The folder, and whether there is something in it to go on from."""
    if not resume:
        data = Path(config.data.name).name.partition(":")[0]
        return RunFolder.create(out, name=name or f"{data}-{config.model.name}", overwrite=overwrite), False
    if out is None:
        raise UsageError("nothing to resume: no run is named", where="--resume", fix="name the run folder with --out")
    place = Path(out).expanduser()
    if not place.exists() or not any(place.iterdir()):
        return RunFolder.create(out, name=name or "run"), False
    run = RunFolder.open(place)
    if run.is_alive():
        pid = (run.read_status() or {}).get("pid")
        raise UsageError(f"process {pid} is writing to {place}", where="--resume", fix="wait for it, or stop it first")
    return run, True


def begin(
    config: TrainConfig,
    dataset: Dataset,
    out: str | Path | None,
    name: str | None,
    *,
    resume: bool,
    resume_from: str | Path | None,
    overwrite: bool,
) -> tuple[Path, bool, bool, Checkpoint | None]:
    """The run's folder, whether there is something in it to go on from, whether that is over for good, and the
    checkpoint to go on from. Of an existing run nothing is changed: whatever is refused here leaves it as it was."""
    run, goes_on = run_folder(config, out, name, resume=resume or resume_from is not None, overwrite=overwrite)
    if not goes_on:
        return run.path, False, False, None
    before = settings_until_now(run, config)
    changes(before, config)
    if resume_from is None and is_over_for_good(run, before, config):
        return run.path, True, True, None
    return run.path, True, False, checkpoint_to_resume(run, resume_from, dataset)


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


def go_on(work: Work, checkpoint: Checkpoint, before: TrainConfig, *, chosen: bool) -> None:
    """Everything as it was after the checkpoint's step, and what the settings of now make of it. `chosen`: the
    checkpoint was named by the user, and what came after it is given up."""
    config, course, state = work.config, work.course, work.state
    forgotten = work.processes.after_first(lambda: restore(work, checkpoint))
    given_up = work.processes.by_first(lambda: work.checkpoints.drop_after(checkpoint.step))
    if not work.processes.by_first(lambda: _rebuild_model(work, checkpoint, chosen=chosen)):
        course.best = course.best_step = course.best_epoch = None
    factor = float(state.lr_factor)
    if config.loop.micro_batch != before.loop.micro_batch:
        state.micro_batch = config.loop.micro_batch
    if config.schedule != before.schedule:
        state.lr_factor.fill_(0.5**course.went_back)  # what plateaus of another schedule have made of it is void
        work.plateau = Plateau(config.schedule, lr=config.lr)
    if config.loop.monitor != before.loop.monitor:
        _measure_best_anew(work)
    if config.loop.epochs != before.loop.epochs or _patience(config) != _patience(before):
        course.is_over = course.epoch >= config.loop.epochs or _has_waited(work)
    say(work, f"resuming after step {work.step} (epoch {course.epoch + 1}, batch {course.batch})")
    _say_lr(work, before, factor)
    if given_up and chosen:
        say(work, f"the checkpoints after it are given up: {', '.join(given_up)}")
    if forgotten:
        log.warning("what the hooks %s remembered is not used any more", ", ".join(forgotten))


def _rebuild_model(work: Work, checkpoint: Checkpoint, *, chosen: bool) -> bool:
    """The model folder may hold weights of steps that were taken back: it becomes that of the best step so far. Whether
    there is one."""
    course, folder = work.course, work.run.model
    if course.best_step is None:
        shutil.rmtree(folder, ignore_errors=True)
        return False
    try:
        best = work.checkpoints.open(f"step-{course.best_step:06d}")
    except CheckpointError:
        if chosen:  # then the folder is of a later step
            shutil.rmtree(folder, ignore_errors=True)
        return not chosen
    if best.step != checkpoint.step:
        restore(work, best)
    work.save_model()
    if best.step != checkpoint.step:
        restore(work, checkpoint)
    work.checkpoints.mark_best(best.step)
    return True


def _measure_best_anew(work: Work) -> None:
    """The best weights so far stay those they are; from now on they are held against others by another metric."""
    course, monitor = work.course, work.config.loop.monitor
    epochs = [row for row in work.run.metrics.read() if row.get("step") == course.best_step and monitor in row]
    course.best = course.reference = epochs[-1][monitor] if epochs else None
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


def _has_waited(work: Work) -> bool:
    return work.config.loop.early_stop and work.course.waited >= work.config.loop.patience
