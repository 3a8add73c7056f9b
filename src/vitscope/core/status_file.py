"""status.json: what a run is doing, and a heartbeat that shows whether it still does it."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, get_args

from vitscope.core import strict_json
from vitscope.core.config import require
from vitscope.core.environment import host_name, process_exists
from vitscope.core.files import write_json

State = Literal["starting", "running", "finished", "failed", "stopped", "diverged"]
_AT_WORK = ("starting", "running")


class StatusFile:
    """Each write replaces the whole file, so a reader never sees half of it."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._last: dict[str, Any] = {}
        self._lock = threading.Lock()  # a heartbeat must not put an old state over a new one

    def write(self, state: State, *, step: int | None = None, eta_seconds: float | None = None, **more: Any) -> None:
        """State the run is in now. `step` not given: the last one known stays."""
        require(state in get_args(State), "state", "one of " + ", ".join(get_args(State)), repr(state))
        with self._lock:
            step = self._last.get("step") if step is None else step
            self._last = {"state": state, "step": step, "eta_seconds": eta_seconds, **more}
            self._beat()

    def beat(self) -> None:
        """The same status with the time of now; nothing once the run has ended."""
        with self._lock:
            if self._last.get("state") in _AT_WORK:
                self._beat()

    def read(self) -> dict[str, Any] | None:
        """None where there is no status that can be read."""
        try:
            status = strict_json.decode(json.loads(self.path.read_bytes()))
        except (OSError, ValueError, RecursionError):
            return None
        return status if isinstance(status, dict) else None

    def is_alive(self, *, max_age_seconds: float = 120.0) -> bool:
        """True when a process is at work: its heartbeat is fresh and, if it is on this machine, it exists."""
        status = self.read() or {}
        heartbeat, pid = status.get("heartbeat"), status.get("pid")
        if status.get("state") not in _AT_WORK or not isinstance(heartbeat, int | float):
            return False
        if not abs(time.time() - heartbeat) <= max_age_seconds:  # abs: two machines' clocks differ both ways
            return False
        return status.get("host") != host_name() or (isinstance(pid, int) and process_exists(pid))

    def _beat(self) -> None:
        process = {"pid": os.getpid(), "host": host_name(), "heartbeat": time.time()}
        write_json(self.path, {**self._last, **process})


class Heartbeat:
    """Keeps a status fresh while long work runs: `with Heartbeat(run.status): ...`.

    A write that fails (a full disk) is counted in `failures` and tried again later; the work goes on.
    """

    def __init__(self, status: StatusFile, *, interval_seconds: float = 15.0) -> None:
        self.failures = 0
        self.last_error: Exception | None = None
        self._status = status
        self._interval_seconds = interval_seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="vitscope-heartbeat", daemon=True)

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(timeout=self._interval_seconds)  # a disk that hangs must not hang the run

    def _run(self) -> None:
        while not self._stop.wait(self._interval_seconds):
            try:
                self._status.beat()
            except Exception as error:
                self.failures += 1
                self.last_error = error
