"""The run folder: the files through which trainer, tuner, doctor and web page know of one another's work."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from vitscope.core import run_layout
from vitscope.core.environment import describe_environment
from vitscope.core.errors import UsageError, VitscopeError
from vitscope.core.files import write_json
from vitscope.core.folder_lock import FolderLock
from vitscope.core.metrics_file import MetricsFile
from vitscope.core.overwrite import forget, put_back, refuse_to_overwrite, set_aside
from vitscope.core.run_layout import folder_before, is_run_folder, runs_in
from vitscope.core.status_file import State, StatusFile
from vitscope.core.suggest import did_you_mean
from vitscope.core.yaml import save_yaml


class RunFolder:
    """One run's files. Make it with `create` (a new run) or `open` (an existing one)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.metrics = MetricsFile(self.metrics_path)
        self.status = StatusFile(self.status_path)

    @classmethod
    def create(
        cls,
        out: str | os.PathLike[str] | None = None,
        *,
        name: str,
        root: Path = Path(run_layout.RUNS),
        overwrite: bool = False,
        lock: FolderLock | None = None,
    ) -> RunFolder:
        """A new run in `out`, or in the next free `root/name-001`. Its status is "starting" at once. `overwrite` sets
        a run that is there aside, until `forget_replaced` or `put_back_replaced`."""
        lock = FolderLock() if lock is None else lock
        try:
            path = _numbered(root, name) if out is None else _emptied(Path(out).expanduser(), overwrite, lock)
            lock.take(path)
            run = cls(path)
            # Of two processes that found the same folder empty, one gets it.
            run.status_path.open("x").close()
        except FileExistsError:
            raise _in_use(Path(out or root).expanduser()) from None
        except OSError as error:
            raise VitscopeError(f"cannot make a run folder: {error}", fix="choose another --out") from error
        run.write_status("starting")
        return run

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> RunFolder:
        """An existing run."""
        path = Path(path).expanduser()
        if is_run_folder(path):
            return cls(path)
        inside = runs_in(path)
        if inside:
            fix = f"it holds runs; name one, such as {path / inside[-1]}"
        else:
            near = did_you_mean(path.name, runs_in(path.parent), before=folder_before(path))
            fix = near or "give the folder of a run, such as runs/NAME-001"
        what = "is not a run folder" if path.exists() else "does not exist"
        raise UsageError(f"'{path}' {what}", where=f"looked for {run_layout.STATUS} in it", fix=fix)

    def forget_replaced(self) -> None:
        """The run that was here before is gone for good."""
        forget(self.path)

    def put_back_replaced(self) -> bool:
        """The run that was here before is here again, and nothing of this one; False where there was none."""
        if not (self.path / run_layout.REPLACED).exists():
            return False
        put_back(self.path)
        return True

    def save_config(self, cfg: Any) -> None:
        save_yaml(cfg, self.config_path)

    def save_environment(self, command: str | None = None) -> None:
        """Of this start; and of all starts so far, in order, what was typed, where that is known."""
        commands = [*self.commands, *([] if command is None else [command])]
        write_json(self.env_path, {**describe_environment(free_device_memory=False), "commands": commands})

    @property
    def commands(self) -> list[str]:
        """What was typed to start the run and to continue it."""
        try:
            found = json.loads(self.env_path.read_text(encoding="utf-8")).get("commands", [])
        except (OSError, ValueError, AttributeError):
            return []
        return [command for command in found if isinstance(command, str)] if isinstance(found, list) else []

    def write_status(
        self, state: State, *, step: int | None = None, eta_seconds: float | None = None, **more: Any
    ) -> None:
        self.status.write(state, step=step, eta_seconds=eta_seconds, **more)

    def read_status(self) -> dict[str, Any] | None:
        return self.status.read()

    def is_alive(self, *, max_age_seconds: float = 120.0) -> bool:
        return self.status.is_alive(max_age_seconds=max_age_seconds)

    @property
    def config_path(self) -> Path:
        return self.path / run_layout.CONFIG

    @property
    def env_path(self) -> Path:
        return self.path / run_layout.ENVIRONMENT

    @property
    def status_path(self) -> Path:
        return self.path / run_layout.STATUS

    @property
    def metrics_path(self) -> Path:
        return self.path / run_layout.METRICS

    @property
    def log_path(self) -> Path:
        return self.path / run_layout.LOG

    @property
    def lock_path(self) -> Path:
        return self.path / run_layout.LOCK

    @property
    def bad_samples_path(self) -> Path:
        return self.path / run_layout.BAD_SAMPLES

    @property
    def diagnostics(self) -> Path:
        return self.path / run_layout.DIAGNOSTICS

    @property
    def checkpoints(self) -> Path:
        return self.path / run_layout.CHECKPOINTS

    @property
    def model(self) -> Path:
        return self.path / run_layout.MODEL

    @property
    def plots(self) -> Path:
        return self.path / run_layout.PLOTS

    def __repr__(self) -> str:
        return f"RunFolder({str(self.path)!r})"


def _emptied(path: Path, overwrite: bool, lock: FolderLock) -> Path:
    """The folder `path`, made if need be; refused unless it is empty or what is in it may be replaced."""
    if path.is_dir() and any(path.iterdir()):
        if not overwrite:
            raise _in_use(path)
        refuse_to_overwrite(path)
        lock.take(path)
        set_aside(path)
    path.mkdir(parents=True, exist_ok=True)
    return path


def _in_use(path: Path) -> UsageError:
    if not path.is_dir():
        return UsageError(f"'{path}' exists and is not a folder", fix="choose another --out")
    if is_run_folder(path):
        fix = "continue it with --resume, replace it with --overwrite, or choose another --out"
    else:
        fix = "choose another --out (--resume and --overwrite are for run folders)"
    return UsageError(f"the output folder '{path}' is not empty", fix=fix)


def _numbered(root: Path, name: str) -> Path:
    """Make `root/name-001`, or the number after the highest taken. `mkdir` decides between two processes."""
    name = re.sub(r"[^\w.-]+", "-", name).strip("-.")[:80] or "run"
    root = root.expanduser()
    root.mkdir(parents=True, exist_ok=True)
    taken = (re.fullmatch(re.escape(name) + r"-(\d+)", entry.name) for entry in root.iterdir())
    number = max((int(match[1]) for match in taken if match), default=0) + 1
    while True:
        path = root / f"{name}-{number:03d}"
        try:
            path.mkdir()
            return path
        except FileExistsError:
            number += 1
