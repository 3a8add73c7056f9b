"""`vitscope.fit(config)`: a run from its settings to its tested model, new or resumed."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitscope.core.device import pick_device
from vitscope.core.errors import DataError, DivergedError, UsageError
from vitscope.core.run_folder import RunFolder
from vitscope.core.status_file import Heartbeat
from vitscope.core.yaml import load_yaml
from vitscope.data.dataset import open_dataset
from vitscope.train.changes import changes
from vitscope.train.checkpoints.store import Checkpoint
from vitscope.train.config import TrainConfig
from vitscope.train.finish import draw, draw_first, finish
from vitscope.train.loop import Work, is_to_come, restore, save, say, train
from vitscope.train.setup import Bench, lay_out, set_up, settle
from vitscope.train.show.observer import Observer, Observers
from vitscope.train.show.progress import Progress
from vitscope.train.show.tensorboard import TensorBoard
from vitscope.train.signals import StopFlag
from vitscope.train.step import AfterStep

log = logging.getLogger("vitscope")


@dataclass(frozen=True)
class Run:
    """A run that has ended, for now or for good."""

    folder: RunFolder
    state: str
    """`finished`, or `stopped` by a signal with everything saved."""
    exit_code: int

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """All rows of metrics.jsonl."""
        return self.folder.metrics.read()

    @property
    def best(self) -> dict[str, Any] | None:
        """The row of the evaluation whose weights are in the model folder."""
        config = load_yaml(TrainConfig, self.folder.config_path)
        sign = 1 if config.loop.larger_is_better else -1
        rows = [row for row in self.metrics if isinstance(row.get(config.loop.monitor), int | float)]
        finite = [row for row in rows if row[config.loop.monitor] == row[config.loop.monitor]]
        return max(finite, key=lambda row: sign * row[config.loop.monitor], default=None)

    @property
    def test(self) -> dict[str, Any] | None:
        """The row with the test's figures."""
        return next((row for row in reversed(self.metrics) if "test/accuracy" in row), None)

    @property
    def model_folder(self) -> Path:
        return self.folder.model


def fit(
    config: TrainConfig,
    *,
    out: str | Path | None = None,
    name: str | None = None,
    resume: bool = False,
    resume_from: str | Path | None = None,
    overwrite: bool = False,
    command: str | None = None,
    after_step: Sequence[AfterStep] = (),
    observers: Sequence[Observer] = (),
    quiet: bool = False,
    stop: StopFlag | None = None,
) -> Run:
    """Train as `config` says, in the run folder `out` (by default the next free `runs/NAME-001`).

    `after_step` are hooks that run on the device after every update; what they enter into `state.scalars` is logged.
    `observers` are told of rows and epochs on the host. Ctrl-C and SIGTERM save and return a run that is `stopped`;
    the same call with `resume=True` goes on from there, bit for bit on the CPU as if nothing had happened.
    """
    with contextlib.ExitStack() as stack:
        stop = stack.enter_context(StopFlag()) if stop is None else stop
        device = pick_device(config.loop.device)
        dataset = open_dataset(config.data)
        dataset.require_trainable()
        config = settle(config, dataset)
        run, goes_on = _run_folder(config, out, name, resume or resume_from is not None, overwrite)
        before = load_yaml(TrainConfig, run.config_path) if goes_on and run.config_path.exists() else config
        changes(before, config)  # refuses before anything is written
        longer = config.loop.epochs > before.loop.epochs
        finished = goes_on and (run.read_status() or {}).get("state") == "finished"
        if finished and resume_from is None and not longer:
            _tell(quiet, f"{run.path} is finished: nothing to resume (more epochs: --epochs N)")
            return Run(run, "finished", 0)
        told = Observers([] if quiet else [_Voice()])
        stack.enter_context(_logging_to(run.log_path, told))
        stack.enter_context(_failures_told(run))
        bench = lay_out(config, dataset, device)
        work, checkpoint = _prepared(bench, run, before, goes_on, resume_from, after_step, told, observers, quiet, stop)
        stack.callback(work.observers.close)
        stack.callback(work.launcher.loader.close)
        stack.enter_context(Heartbeat(run.status))
        if checkpoint is None:
            save(work)
            draw_first(work, bench)

        train(work)

        if not work.course.is_over:
            run.write_status("stopped", step=work.step)
            draw(work, bench, None)
            say(work, f"stopped by {stop.cause} after step {work.step}; everything is saved")
            return Run(run, "stopped", stop.exit_code)
        finish(work, bench, command=command or "vitscope.fit(config)")
        run.write_status("finished", step=work.step)
        return Run(run, "finished", 0)


def _run_folder(
    config: TrainConfig, out: str | Path | None, name: str | None, resume: bool, overwrite: bool
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


def _prepared(
    bench: Bench,
    run: RunFolder,
    before: TrainConfig,
    goes_on: bool,
    resume_from: str | Path | None,
    after: Sequence[AfterStep],
    told: Observers,
    watchers: Sequence[Observer],
    quiet: bool,
    stop: StopFlag,
) -> tuple[Work, Checkpoint | None]:
    """Everything in its place: at step 0, or where the checkpoint was made. `before` are the settings until now."""
    config = bench.config

    def speak(text: str) -> None:
        log.info(text)
        told.say(text)

    for change in changes(before, config):
        speak(f"changed since the run began: {change}")
    run.write_status("starting")
    run.save_config(config)
    run.save_environment()
    speak(f"{bench.dataset!r}")
    if config.optim.scale_lr != "none":
        speak(f"lr {config.optim.lr:g}, scaled ({config.optim.scale_lr}) to {config.lr:g}")
    work = set_up(bench, run, observers=told, after=after, stop=stop, say=speak)
    work.checkpoints.sweep()
    checkpoint = None
    if goes_on:
        checkpoint = work.checkpoints.open(resume_from) if resume_from is not None else work.checkpoints.newest()
        if checkpoint is None:
            speak(f"no checkpoint in {run.path} yet: starting at step 0")
    if checkpoint is not None:
        _refuse_other_split(checkpoint, work)
        restore(work, checkpoint)
        if config.loop.micro_batch != before.loop.micro_batch:
            work.state.micro_batch = config.loop.micro_batch
        if config.loop.epochs != before.loop.epochs:
            work.course.is_over = work.course.epoch >= config.loop.epochs
        work.checkpoints.drop_after(checkpoint.step)
        if resume_from is None and work.course.best_step == checkpoint.step:
            work.checkpoints.mark_best(checkpoint.step)  # a kill can fall between the checkpoint and its mark
        speak(f"resuming after step {work.step} (epoch {work.course.epoch + 1}, batch {work.course.batch})")
    if goes_on:
        run.metrics.cut(lambda row: is_to_come(work, row))
    told.watchers[:] = [TensorBoard(run.path, purge_step=work.step + 1 if goes_on else None), *watchers]
    if not quiet:
        told.watchers.insert(
            0,
            Progress(
                epochs=config.loop.epochs,
                steps_per_epoch=work.steps_per_epoch,
                batch_size=config.data.batch_size,
                start_step=work.step,
                monitor=config.loop.monitor,
                larger_is_better=config.loop.larger_is_better,
                best=work.course.best,
            ),
        )
    return work, checkpoint


def _refuse_other_split(checkpoint: Checkpoint, work: Work) -> None:
    if checkpoint.meta.get("split_hash") != work.split_hash:
        raise DataError(
            "the data are not those the run began with: pictures, labels or the split differ",
            where=str(checkpoint.path),
            fix="give the same data, or start a new run",
        )


class _Voice(Observer):
    """Before there is a progress line."""

    def say(self, text: str) -> None:
        sys.stderr.write(text + "\n")


def _tell(quiet: bool, text: str) -> None:
    if not quiet:
        _Voice().say(text)


@contextlib.contextmanager
def _logging_to(path: Path, told: Observer) -> Iterator[None]:
    """What is logged goes into the run's log; warnings (a damaged checkpoint, a lost worker) are said aloud too."""
    file, aloud = logging.FileHandler(path, encoding="utf-8"), _Aloud(told)
    file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    before = log.level
    log.setLevel(logging.INFO)
    log.addHandler(file)
    log.addHandler(aloud)
    try:
        yield
    finally:
        log.removeHandler(aloud)
        log.removeHandler(file)
        log.setLevel(before)
        file.close()


class _Aloud(logging.Handler):
    """Passes warnings to whoever watches. What is less is said by whom it concerns; errors end the run and are shown
    then."""

    def __init__(self, told: Observer) -> None:
        super().__init__(logging.WARNING)
        self.told = told

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno == logging.WARNING:
            self.told.say(f"warning: {record.getMessage()}")


@contextlib.contextmanager
def _failures_told(run: RunFolder) -> Iterator[None]:
    """Whatever ends the run early stands in its log and its status."""
    try:
        yield
    except BaseException as error:
        log.error("the run ended: %s", str(error) or type(error).__name__, exc_info=True)
        with contextlib.suppress(OSError):
            if isinstance(error, KeyboardInterrupt):  # Ctrl-C for the second time: the last checkpoint stands
                run.write_status("stopped")
            else:
                run.write_status("diverged" if isinstance(error, DivergedError) else "failed", error=str(error))
        raise
