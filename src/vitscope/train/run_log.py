"""train.log and status.json of a run: what is logged, what is said aloud, and how an ending is told."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator
from pathlib import Path

from vitscope.core.errors import DivergedError, VitscopeError
from vitscope.core.run_folder import RunFolder
from vitscope.core.status_file import State
from vitscope.train.show.observer import Observer

log = logging.getLogger("vitscope")


class Voice(Observer):
    """Says things on standard error before there is a progress line, and where there is none."""

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix

    def say(self, text: str) -> None:
        sys.stderr.write(f"{self.prefix}{text}\n")


@contextlib.contextmanager
def logging_to(path: Path, told: Observer) -> Iterator[None]:
    """What is logged goes into the run's log; warnings (a damaged checkpoint, a lost worker) are said aloud too."""
    file, aloud = _LogFile(path, encoding="utf-8"), _Aloud(told)
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
        with contextlib.suppress(OSError):
            file.close()


class _LogFile(logging.FileHandler):
    """A full disk costs lines of the log, nothing else."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  logging's own name
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)


@contextlib.contextmanager
def log_held() -> Iterator[list[logging.LogRecord]]:
    """What is logged while it is not yet known whether the run may be written to. Give it to `log.handle` then."""
    held, propagates = _Held(), log.propagate
    log.addHandler(held)
    log.propagate = False
    try:
        yield held.records
    finally:
        log.removeHandler(held)
        log.propagate = propagates


class _Held(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@contextlib.contextmanager
def logging_aloud(rank: int) -> Iterator[None]:
    """In a process that keeps no log: warnings are about itself (a lost worker), and are said."""
    aloud = _Aloud(Voice(f"process {rank}: "))
    log.addHandler(aloud)
    try:
        yield
    finally:
        log.removeHandler(aloud)


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
def nothing_left_of_refusals(run: RunFolder) -> Iterator[None]:
    """A new run that cannot begin with its settings leaves no folder: the corrected command shall find none. One that
    was to replace another gives way to it again, whatever went wrong."""
    try:
        yield
    except BaseException as error:
        if run.put_back_replaced() or not isinstance(error, VitscopeError):
            raise
        own = (run.config_path, run.env_path, run.log_path, run.status_path, run.lock_path)
        with contextlib.suppress(OSError):
            if {entry.name for entry in run.path.iterdir()} <= {path.name for path in own}:
                for path in own:
                    path.unlink(missing_ok=True)
                run.path.rmdir()
        raise


def tell_end(run: RunFolder, state: State, step: int | None) -> None:
    """How it ended stands in the status, if the disk takes it."""
    try:
        run.write_status(state, step=step)
    except OSError as error:
        log.warning("status not written: %s", error)


@contextlib.contextmanager
def failures_told(run: RunFolder) -> Iterator[None]:
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
