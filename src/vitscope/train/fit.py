"""`vitscope.fit(config)`: a run from its settings to its tested model, new or resumed."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitscope.core.errors import EXIT_DONE, EXIT_FAILED, DivergedError
from vitscope.core.folder_lock import FolderLock
from vitscope.core.one_voice import in_one_voice
from vitscope.core.read_only_folder import ReadOnlyFolder
from vitscope.core.run_folder import RunFolder
from vitscope.core.run_view import read_run
from vitscope.core.seed import preserved_rng
from vitscope.core.status_file import Heartbeat
from vitscope.core.threads import using_threads
from vitscope.train.basis import lay_out, settle
from vitscope.train.changes import changes, refuse_other_settings
from vitscope.train.config import TrainConfig
from vitscope.train.finish import draw, draw_first, finish, require_model
from vitscope.train.loop import is_asked_to_stop, save, train, write_rows
from vitscope.train.precision import using_precision
from vitscope.train.processes import join
from vitscope.train.resume import begin, epochs_done, go_on, is_to_come, settings_until_now, trainable
from vitscope.train.run_log import (
    Voice,
    failures_told,
    log_held,
    logging_aloud,
    logging_to,
    nothing_left_of_refusals,
    tell_end,
)
from vitscope.train.said_of_steps import said_of_classes, said_of_empty
from vitscope.train.setup import set_up
from vitscope.train.show.observer import Observer, Observers
from vitscope.train.show.progress import Progress
from vitscope.train.show.tensorboard import TensorBoard
from vitscope.train.signals import StopFlag
from vitscope.train.step import AfterStep
from vitscope.train.work import BetweenSteps, Work, say

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
        return read_run(self.folder.path).best

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
    remarks: Sequence[str] = (),
    after_step: Sequence[AfterStep] = (),
    between_steps: Sequence[BetweenSteps] = (),
    observers: Sequence[Observer] = (),
    quiet: bool = False,
    stop: StopFlag | None = None,
) -> Run:
    """Train as `config` says, in the run folder `out` (by default the next free `runs/NAME-001`).

    `after_step` are hooks that run on the device after every update; what they enter into `state.scalars` is logged.
    `between_steps` look at the run from the host between two steps, `observers` are told of rows and epochs. Ctrl-C and
    SIGTERM save and return a run that is `stopped`; the same call with `resume=True` goes on from there, bit for bit on
    the CPU as if nothing had happened.

    `command` is what was typed for the run, `remarks` what its log is to say of that.

    Under torchrun every process makes the same call and they train together; the first one writes, speaks and tells
    `observers`.
    """
    with contextlib.ExitStack() as stack:
        stop = stack.enter_context(StopFlag()) if stop is None else stop
        with in_one_voice(lambda: bool(stop)):
            processes = join(config.loop.device, config.loop.parallel)
        stack.push(lambda _kind, error, _trace: processes.leave(error))
        quiet = quiet or not processes.is_first
        told = Observers([] if quiet else [Voice()])

        def speak(text: str) -> None:
            log.info(text)
            told.say(text)

        # --- what is to be done, and whether it can be: until it is known, nothing of an existing run is lost ---------
        dataset = processes.after_first(lambda: trainable(config.data))
        asked, wanted = config, settle(config, dataset)
        refuse_other_settings(wanted, processes)
        lock = FolderLock()
        stack.callback(lock.release)
        with log_held() as held:
            beginning = processes.by_first(
                lambda: begin(
                    wanted, dataset, out, name, lock, resume=resume, resume_from=resume_from, overwrite=overwrite
                )
            )
        place, goes_on, checkpoint = beginning.place, beginning.goes_on, beginning.checkpoint
        config, run = wanted, RunFolder(place) if processes.is_first else ReadOnlyFolder(place)
        before = settings_until_now(run, config) if goes_on else config
        processes.wait()  # until all have read what the first is going to write anew
        if beginning.is_over:
            told.say(f"{run.path} is finished: nothing to resume (more epochs: --epochs N)")
            return Run(run, "finished", EXIT_DONE)

        # --- everything in its place ---------------------------------------------------------------------------------
        if processes.is_first and not goes_on:
            stack.enter_context(nothing_left_of_refusals(run))
        stack.enter_context(logging_to(run.log_path, told) if processes.is_first else logging_aloud(processes.rank))
        for record in held:
            log.handle(record)
        failures, alive = stack.enter_context(contextlib.ExitStack()), Heartbeat(run.status)
        if not goes_on:
            failures.enter_context(failures_told(run))
            run.write_status("starting")
            failures.enter_context(alive)
        stack.enter_context(preserved_rng())
        stack.enter_context(using_precision(config.precision))
        stack.enter_context(using_threads(config.loop.threads))
        changed = changes(before, config)
        for change in changed:
            speak(f"changed since the run began: {change}")
        speak(f"data: {dataset.in_words()}")
        of_classes = said_of_classes(asked, dataset.num_classes, command)
        for sentence in (*remarks, *of_classes, *said_of_empty(dataset)):
            speak(sentence)
        if config.optim.scale_lr != "none":
            speak(f"lr {config.optim.lr:g}, scaled ({config.optim.scale_lr}) to {config.lr:g}")
        basis = lay_out(config, dataset, processes.device, processes, epochs_done=epochs_done(checkpoint))

        def all_that_takes_part() -> Work:
            made = set_up(
                basis,
                run,
                observers=told,
                after=after_step,
                between=between_steps,
                stop=stop,
                say=speak,
                resumes=checkpoint is not None,
            )
            stack.callback(made.close)  # now: the others may fail where this one did not
            return made

        work = processes.after_first(all_that_takes_part)
        processes.by_first(work.checkpoints.sweep)
        if checkpoint is not None:
            go_on(work, checkpoint, before, chosen=resume_from is not None)
        elif goes_on:
            speak(f"no checkpoint in {run.path} yet: starting at step 0")
        if goes_on:
            failures.enter_context(failures_told(run))
            run.metrics.cut(lambda row: is_to_come(work, row))
        run.write_status("starting", step=work.step)
        if goes_on:
            failures.enter_context(alive)
        else:
            run.save_config(config)
        run.save_environment(command)
        processes.share(work.launcher.objective)
        if processes.is_first:
            told.watchers[:] = _watchers(work, observers, quiet=quiet, goes_on=goes_on)
        stack.callback(told.close)
        run.forget_replaced()
        if checkpoint is None or changed:
            save(work)
        if goes_on and work.saved_step == work.step:
            # Only now: the next resume will not know changes any more that stand here.
            run.save_config(config)
        if checkpoint is None:
            processes.by_first(lambda: draw_first(work, basis))

        # --- training ------------------------------------------------------------------------------------------------
        try:
            train(work)
        except DivergedError:
            processes.by_first(lambda: draw(work, basis, None))  # the curves show how it came about
            raise
        write_rows(work, [])
        if work.course.is_over:
            require_model(work)
        if work.course.is_over and finish(work, basis):
            run.save_config(config)
            tell_end(run, "finished", work.step)
            return Run(run, "finished", EXIT_DONE)
        is_asked_to_stop(stop, processes)  # by a signal that only the first heard, in the test
        tell_end(run, "stopped", work.saved_step)
        processes.by_first(lambda: draw(work, basis, None))
        is_saved = work.saved_step == work.step
        newest = "no checkpoint" if work.saved_step is None else f"the newest checkpoint is of step {work.saved_step}"
        kept = "everything is saved" if is_saved else newest
        how = "paused, as planned," if stop.is_paused else f"stopped by {stop.cause}"
        say(work, f"{how} after step {work.step}; {kept}")
        return Run(run, "stopped", stop.exit_code if is_saved else EXIT_FAILED)


def _watchers(work: Work, observers: Sequence[Observer], *, quiet: bool, goes_on: bool) -> list[Observer]:
    config = work.config
    progress = Progress(
        epochs=config.loop.epochs,
        steps_per_epoch=work.steps_per_epoch,
        batch_size=config.data.batch_size,
        start_step=work.step,
    )
    board = TensorBoard(work.run.path, purge_step=work.step + 1 if goes_on else None)
    return [*([] if quiet else [progress]), board, *observers]
