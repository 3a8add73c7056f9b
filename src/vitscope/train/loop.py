"""The training loop, top to bottom: steps, evaluation, checkpoint, next epoch; and what is done when it goes wrong.

A step here is one optimiser update. Steps are counted over the whole run; checkpoint `step-000123` holds everything as
it was after step 123.
"""

from __future__ import annotations

import logging
import math
import time
from typing import Any

from vitscope.core.errors import VitscopeError, said_by_first
from vitscope.train.back import go_back
from vitscope.train.bad_step import record_bad_step
from vitscope.train.checkpoints.store import CheckpointError, NotFiniteError
from vitscope.train.processes import Processes
from vitscope.train.signals import StopFlag
from vitscope.train.watch import WentWrongError, is_bad
from vitscope.train.work import Work, say

MOST_FAILED_SAVES = 3
STATUS_SECONDS = 5.0

log = logging.getLogger("vitscope")


def train(work: Work) -> None:
    """Train to the end, or until asked to stop (then everything is saved, and `course.is_over` is False)."""
    config, course = work.config, work.course
    while not course.is_over:
        try:
            # --- the steps of an epoch ---------------------------------------------------------------------------
            work.clock = time.perf_counter()
            for batch in work.launcher.epoch(course.epoch, course.batch):
                note_step(work, batch)
                for probe in work.between:
                    probe.see(work)
                # Asked once: raised in between, it would leave without saving.
                stops = is_asked_to_stop(work.stop, work.processes)
                if stops or len(work.steps_unread) >= look_every(work):
                    look(work)
                if stops or _is_due(config.checkpoint.every_steps, work.step):
                    save(work)
                if stops:
                    return
            look(work)

            # --- evaluation --------------------------------------------------------------------------------------
            is_last, is_best = course.epoch + 1 >= config.loop.epochs, False
            row: dict[str, Any] = {"step": work.step, "epoch": course.epoch + 1, **course.epoch_means()}
            if is_last or _is_due(config.loop.eval_every, course.epoch + 1):
                found = work.evaluate()
                if found is None:  # asked to stop
                    save(work)
                    return
                figures = {"val/loss": found.loss, "val/accuracy": found.accuracy}
                # All judge by the same figures, also where two devices round otherwise.
                row |= work.processes.of_first(figures)
                is_best = judge(work, row)
            record(work, row)

            # --- the next epoch ----------------------------------------------------------------------------------
            course.next_epoch()
            course.is_over = is_last or ends_early(work)
            if is_best or course.is_over or _is_due(config.checkpoint.every_epochs, course.epoch):
                save(work, best=is_best)
        except (WentWrongError, NotFiniteError) as trouble:
            go_back(work, trouble)


def is_asked_to_stop(stop: StopFlag, processes: Processes) -> bool:
    """Whether any process has heard a signal; then all have, and leave with its exit code."""
    signal = processes.most(stop.signal or 0)
    if signal and not stop:
        stop.raise_flag(signal)
    return bool(signal)


def note_step(work: Work, batch: int) -> None:
    """A step was launched; `batch` is the number of the batch that comes next."""
    work.course.batch = batch
    work.course.pictures += work.config.data.batch_size
    work.steps_unread.append(batch)


def look(work: Work) -> None:
    """Read what the steps since the last look left on the device: log it, and see whether training goes wrong."""
    course, first = work.course, work.course.epoch * work.steps_per_epoch
    rows = work.state.ledger.read()
    batches, work.steps_unread = work.steps_unread, []
    now = time.perf_counter()
    course.train_seconds, work.clock = course.train_seconds + now - work.clock, now
    told = [{"step": first + batch, "epoch": course.epoch + 1, **row} for batch, row in zip(batches, rows, strict=True)]
    for row in told:
        course.count(row)
    write_rows(work, told)
    if told:
        work.observers.steps(told)
    _write_status(work)
    for row, batch in zip(told, batches, strict=True):
        if is_bad(row) and course.bad_in_a_row == 0:
            _record_bad_step(work, row, batch - 1)
        work.watch.see(row)


def look_every(work: Work) -> int:
    """On the CPU a look costs nothing; a GPU would have to wait for each."""
    return 1 if work.state.device.type == "cpu" else work.config.loop.log_every


def judge(work: Work, row: dict[str, Any]) -> bool:
    """Draw the consequences of an evaluation: a lower learning rate on a plateau, and the run's model where these are
    the best weights so far. Then the row says so."""
    config, course, factor = work.config, work.course, work.plateau.factor
    if config.schedule.name == "plateau" and work.plateau.update(row[config.schedule.plateau_metric]):
        change = work.plateau.factor / factor  # not `plateau_factor` where `min_lr` is reached
        work.state.lr_factor.mul_(change)
        say(work, f"plateau: lr is multiplied by {change:g} after epoch {course.epoch + 1}")
    before = course.best_so_far
    is_finite = math.isfinite(row["val/loss"])  # a network that gives no numbers may still hit a class
    is_best = course.judge(
        row[config.loop.monitor] if is_finite else math.nan,
        step=work.step,
        larger_is_better=config.loop.larger_is_better,
        min_delta=config.loop.min_delta,
    )
    if is_best and not keep_model(work):
        is_best, course.best_so_far = False, before
    if is_best:
        row["best"] = True
    return is_best


def record(work: Work, row: dict[str, Any]) -> None:
    """An epoch's row goes to the metrics, the log and to whoever watches."""
    work.note_others()
    write_rows(work, [row])
    log.info("epoch %s: %s", row["epoch"], ", ".join(f"{key} {row[key]:.5g}" for key in row if "/" in key))
    work.observers.epoch(row)
    _write_status(work, now=True)


def write_rows(work: Work, rows: list[dict[str, Any]]) -> None:
    """Append to metrics.jsonl. Where the disk is full the rows wait for the next time; whether the run can go on is
    decided by its checkpoints."""
    waited = bool(work.rows_unwritten)
    work.rows_unwritten += rows
    try:
        while work.rows_unwritten:
            work.run.metrics.append(work.rows_unwritten[0])
            del work.rows_unwritten[0]
    except VitscopeError as error:
        if not waited:
            log.warning("%s; rows wait in memory", error.what)


def keep_model(work: Work) -> bool:
    """The weights as they are become the run's model; whether the disk took them."""
    try:
        work.save_model()
    except CheckpointError as error:
        say(work, f"warning: {error.what}; the model before stays, going on")
        return False
    return True


def save(work: Work, *, best: bool = False) -> None:
    """A checkpoint of everything, now; none while steps go wrong, for going back must lead to before that. Where the
    disk does not take it, training goes on with the last good one, until three in a row have failed."""
    course = work.course
    if work.steps_unread:
        look(work)
    if course.is_in_trouble:
        log.info("no checkpoint of step %s: the steps before it went wrong", work.step)
        return

    def state() -> tuple[dict[str, Any], dict[str, Any]]:
        trainer = {
            "state": work.state.state_dict(),
            "course": course.to_dict(),
            "plateau": work.plateau.state_dict(),
            "hooks": {hook.name: hook.state_dict() for hook in work.hooks_with_state},
        }
        return work.state.model.state_dict(), trainer

    def write(state: tuple[dict[str, Any], dict[str, Any]]) -> None:
        work.checkpoints.save(
            work.step,
            *state,
            {
                "epoch": course.epoch,
                "batch": course.batch,
                "split_hash": work.split_hash,
                "steps_per_epoch": work.steps_per_epoch,
            },
        )
        if best:
            work.checkpoints.mark_best(work.step)

    try:
        work.processes.by_first_with(state, write)
    except CheckpointError as error:
        work.failed_saves += 1
        say(work, f"warning: checkpoint of step {work.step} not saved ({error.what}); going on")
        if work.failed_saves >= MOST_FAILED_SAVES:
            with said_by_first(work.processes.rank):
                raise VitscopeError(
                    f"{MOST_FAILED_SAVES} checkpoints in a row could not be saved: {error.what}",
                    where=str(work.run.checkpoints),
                    fix="make room on the disk, then continue with --resume",
                ) from error
        return
    work.failed_saves, work.saved_step = 0, work.step
    work.clock = time.perf_counter()  # a save is not training


def _is_due(every: int | None, count: int) -> bool:
    return every is not None and count % every == 0


def ends_early(work: Work) -> bool:
    """Whether patience is at its end; then it is said."""
    waited = work.course.waited
    if not work.course.has_waited(work.config.loop):
        return False
    say(work, f"ending early: no better {work.config.loop.monitor} in {waited} evaluation{'s' * (waited > 1)}")
    return True


def _record_bad_step(work: Work, row: dict[str, Any], batch: int) -> None:
    def keep(weights: dict[str, Any]) -> str:
        folder, seed, epoch = work.run.diagnostics, work.config.loop.seed, work.course.epoch
        try:
            place = record_bad_step(folder, work.state, row, seed=seed, epoch=epoch, batch=batch, weights=weights)
        except OSError as error:  # a full disk must not end the run here
            return f"; not kept: {error}"
        return f"; kept in {place}" if place is not None else ""

    kept = work.processes.by_first_with(work.state.model.state_dict, keep)
    say(work, f"step {row['step']} skipped: loss {row['train/loss']:g}, gradient norm {row['train/grad_norm']:g}{kept}")


def _write_status(work: Work, *, now: bool = False) -> None:
    moment = time.monotonic()
    if not now and moment - work.status_written < STATUS_SECONDS:
        return
    work.status_written = moment
    try:
        work.run.write_status("running", step=work.step, eta_seconds=getattr(work.observers, "seconds_left", None))
    except OSError as error:  # a full disk must not end the run here
        log.warning("status not written: %s", error)
