"""A run as whoever looks at it sees it: read at once, while it is written or after it broke, never changed."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitscope.core.errors import VitscopeError
from vitscope.core.run_folder import RunFolder
from vitscope.core.yaml import parse_yaml

MONITOR = "val/accuracy"
"""What "best" is measured by where the settings do not say."""


@dataclass(frozen=True)
class RunView:
    """What a run folder held at one moment. What is missing or damaged is None or empty, and named in `problems`."""

    path: Path
    status: dict[str, Any] | None
    """status.json: `state`, `step`, `eta_seconds`, `heartbeat`, ..."""
    is_alive: bool
    """Whether a process is at work. A run that says `running` and is not alive was killed."""
    rows: list[dict[str, Any]]
    """metrics.jsonl, line by line, NaN as a float."""
    config: dict[str, Any] | None
    """config.yaml as plain data, section by section."""
    problems: tuple[str, ...] = ()
    """What could not be read, and why."""

    @property
    def state(self) -> str | None:
        """`starting`, `running`, `finished`, `failed`, `stopped` or `diverged`."""
        state = (self.status or {}).get("state")
        return state if isinstance(state, str) else None

    @property
    def columns(self) -> list[str]:
        """Every key that has a number somewhere, in order of appearance: `train/loss`, ..."""
        return list(dict.fromkeys(key for row in self.rows for key, value in row.items() if _is_number(value)))

    def column(self, key: str) -> tuple[list[int], list[float]]:
        """Steps and numbers under `key`: the curve as it stands. Where training went back to an earlier checkpoint, the
        steps it took anew have replaced the old ones; `rows` has both."""
        rows = self._standing(key)
        return [row["step"] for row in rows], [float(row[key]) for row in rows]

    @property
    def monitor(self) -> str:
        """The metric "best" is measured by."""
        monitor = self._of_loop("monitor")
        return monitor if isinstance(monitor, str) else MONITOR

    @property
    def monitor_mode(self) -> str:
        """`min`, `max`, or `auto`: small is good for a loss."""
        mode = self._of_loop("monitor_mode")
        return mode if isinstance(mode, str) else "auto"

    @property
    def best(self) -> dict[str, Any] | None:
        """The row of the best evaluation, whose weights are in the model folder: the last one marked `best`."""
        marked = [row for row in self._standing(self.monitor) if row.get("best") is True]
        return marked[-1] if marked else None

    @property
    def test(self) -> dict[str, Any] | None:
        """The row with the test's figures; only a finished run has one."""
        return next((row for row in reversed(self.rows) if "test/accuracy" in row), None)

    def _standing(self, key: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        for row in self.rows:
            if _is_number(row.get(key)):
                while rows and rows[-1]["step"] >= row["step"]:
                    rows.pop()
                rows.append(row)
        return rows

    def _of_loop(self, key: str) -> Any:
        section = (self.config or {}).get("loop")
        return section.get(key) if isinstance(section, dict) else None

    def __repr__(self) -> str:
        return f"RunView({str(self.path)!r}, {self.state}, {len(self.rows):,} rows)"


def read_run(path: str | os.PathLike[str]) -> RunView:
    """The run in the folder `path`, whatever state it is in. Only a folder that is no run at all is refused."""
    run = RunFolder.open(path)
    problems: list[str] = []
    is_alive = run.is_alive()  # before the status: what has just ended must not look as if it was killed
    status = run.read_status()
    if status is None and run.status_path.exists():
        problems.append(f"{run.status_path.name}: cannot be read")
    rows: list[dict[str, Any]] = []
    try:
        rows = run.metrics.read()
    except OSError as error:
        problems.append(f"{run.metrics_path.name}: {error.strerror or error}")
    if run.metrics.bad_lines:
        problems.append(f"{run.metrics_path.name}: lines that are no rows: {run.metrics.bad_lines:,}")
    config = _settings(run.config_path, problems)
    return RunView(run.path, status, is_alive, rows, config, tuple(problems))


def _settings(path: Path, problems: list[str]) -> dict[str, Any] | None:
    try:
        found = parse_yaml(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        problems.append(f"{path.name}: {error}")
        return None
    except VitscopeError as error:
        problems.append(f"{path.name}: {error.what}")
        return None
    if isinstance(found, dict):
        return found
    problems.append(f"{path.name}: holds no settings")
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
