"""torch's DataLoader, made to lose nothing: pixels of batches from worker processes that may die or hang.

torch tells of a dead worker by a SIGCHLD handler that raises wherever the main process happens to be, in the middle of
a training step too, and drops the batches the worker had. Here the handler is told nothing; while a batch is awaited,
the workers are looked at every second, and whoever loads gets WorkersLostError and can go on at the missing batch.
A batch that has come still has to be fetched out of its worker's memory, where torch waits without an end: a worker
that hangs by then is killed, which ends the waiting.
"""

from __future__ import annotations

import signal
import threading
import time
import warnings
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch.utils.data import DataLoader

from vitscope.data.loaders.watchdog import Watchdog
from vitscope.data.loaders.worker_dataset import PictureDataset, Pixels, Wanted, as_it_is, ignore_ctrl_c

LOOK_EVERY_S = 1.0
GRACE_S = 5.0
"""How long a worker may take to end before it is killed."""
AHEAD = 2
"""Batches each worker prepares before they are asked for."""


class WorkersLostError(Exception):
    """Workers died or hang. The text names them."""


class PixelStream:
    """Batches in the order they were asked for, from `workers` processes that last over epochs (0: from this one)."""

    def __init__(self, dataset: PictureDataset, *, workers: int, pin_memory: bool, timeout_s: float) -> None:
        self.dataset = dataset
        self.workers = workers
        self.pin_memory = pin_memory
        self.timeout_s = timeout_s
        self._feed = _Feed()
        # It knows the stream only as long as somebody else does: a forgotten one is to end its workers.
        here = weakref.ref(self)
        self._watchdog = Watchdog(timeout_s + LOOK_EVERY_S, lambda: _kill(_processes_of(here())))
        self._loader: DataLoader[Pixels] | None = None
        self._iterator: Any = None
        self._used_up = True

    def start(self, batches: Iterable[Wanted]) -> None:
        """Begin to work on these. What is left of those before is dropped."""
        if not self._used_up:
            self.stop()  # cheaper to reason about than workers that still send what nobody wants
        self._used_up = False
        self._feed.batches = batches
        try:
            self._begin()
        except Exception as error:
            self._refuse_lost(error)
            if not _is_timeout(error):
                raise
            self.stop(kill=True)  # workers that had nothing to do did not answer: new ones
            self._begin()

    def receive(self) -> Pixels | None:
        """The next batch; None after the last. Raises WorkersLostError, or what went wrong in the worker."""
        since = time.monotonic()
        while True:
            try:
                with self._watchdog if self.workers else nullcontext():
                    return next(self._iterator)
            except StopIteration:
                self._used_up = True
                return None
            except Exception as error:
                if not self._watchdog.has_bitten:
                    self._refuse_lost(error)
                    if not _is_timeout(error):
                        raise
                if self._watchdog.has_bitten or time.monotonic() - since >= self.timeout_s:
                    pids = ", ".join(str(process.pid) for process in self.processes)
                    raise WorkersLostError(
                        f"no loader worker (pid {pids}) sent anything for {self.timeout_s:g} s"
                    ) from error

    def stop(self, *, kill: bool = False) -> None:
        """End the workers, by force if need be or where `kill` says that some are beyond listening."""
        iterator, processes = self._iterator, self.processes
        self._iterator = self._loader = None
        self._used_up = True
        self._watchdog.stop()
        if not processes:
            return
        if kill:
            _kill(processes)
        # A worker killed while it held one of torch's locks would block this for ever: hence a thread, left to itself.
        ending = threading.Thread(target=iterator._shutdown_workers, daemon=True)
        ending.start()
        ending.join(GRACE_S)
        for process in processes:
            if process.is_alive():
                process.kill()
            process.join(GRACE_S)

    @property
    def processes(self) -> list[Any]:
        """The workers that run now."""
        return _processes_of(self)

    def _begin(self) -> None:
        with _torch_quiet():
            if self._loader is None:
                self._loader = self._new_loader()
            self._iterator = iter(self._loader)
        if getattr(self._iterator, "_worker_pids_set", False):
            torch._C._remove_worker_pids(id(self._iterator))
            self._iterator._worker_pids_set = False

    def _new_loader(self) -> DataLoader[Pixels]:
        at_work: dict[str, Any] = {}
        if self.workers:
            at_work = {
                "timeout": min(LOOK_EVERY_S, self.timeout_s),
                "prefetch_factor": AHEAD,
                "persistent_workers": True,
                "worker_init_fn": ignore_ctrl_c,
            }
        return DataLoader(
            self.dataset,
            batch_sampler=self._feed,  # pyright: ignore[reportArgumentType]
            collate_fn=as_it_is,
            num_workers=self.workers,
            pin_memory=self.pin_memory,
            generator=torch.Generator(),  # else every epoch would draw from the global one
            **at_work,
        )

    def _refuse_lost(self, error: Exception) -> None:
        """Raise WorkersLostError if this is how a worker's death shows, in any of the ways it does."""
        if str(error).startswith("Caught "):  # torch's head of what a worker itself raised
            return
        # A batch can turn out to be out of reach a moment before its worker counts as dead.
        patience_s = 1.0 if isinstance(error, OSError | EOFError) else 0.0
        until = time.monotonic() + patience_s
        while True:
            lost = [process for process in self.processes if not process.is_alive()]
            if lost:
                raise WorkersLostError("; ".join(map(_fate, lost))) from error
            if time.monotonic() >= until:
                return
            time.sleep(0.05)


def _processes_of(stream: PixelStream | None) -> list[Any]:
    return [] if stream is None else list(getattr(stream._iterator, "_workers", ()))


def _kill(processes: Iterable[Any]) -> None:
    for process in processes:
        process.kill()


class _Feed:
    """What the DataLoader takes its batches from: persistent workers, new batches each epoch."""

    batches: Iterable[Wanted] = ()

    def __iter__(self) -> Iterator[Wanted]:
        return iter(self.batches)


def _is_timeout(error: Exception) -> bool:
    return isinstance(error, RuntimeError) and str(error).startswith("DataLoader timed out")


def _fate(process: Any) -> str:
    code = process.exitcode
    if code is None or code >= 0:
        return f"loader worker (pid {process.pid}) ended by itself with status {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:  # real-time signals have no name
        name = str(-code)
    return f"loader worker (pid {process.pid}) was killed by signal {name}"


@contextmanager
def _torch_quiet() -> Iterator[None]:
    """How many workers is the user's choice; that threads and fork do not mix is known, and what the timeout is for."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="This DataLoader will create")
        warnings.filterwarnings("ignore", message=".*multi-threaded, use of fork", category=DeprecationWarning)
        yield
