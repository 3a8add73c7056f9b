"""`--overwrite`: empties a run folder, and refuses to empty anything else."""

from __future__ import annotations

import shutil
from pathlib import Path

from vitscope.core.errors import UsageError, VitscopeError
from vitscope.core.run_layout import METRICS, NAMES, STATUS, is_run_folder
from vitscope.core.status_file import StatusFile


def empty_run_folder(path: Path) -> None:
    """Delete what is in the run folder `path`. The folder itself stays."""
    reason = _reason_to_refuse(path)
    if reason is not None:
        raise UsageError(
            f"--overwrite will not delete {path}: {reason}", fix="choose another --out, or delete it yourself"
        )
    # The status goes last: a deletion that is interrupted leaves something that is still known as a run.
    for entry in sorted(path.iterdir(), key=lambda entry: entry.name == STATUS):
        try:
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        except OSError as error:
            raise VitscopeError(
                f"cannot delete the old run: {error}", where=str(path), fix="choose another --out"
            ) from error


def _reason_to_refuse(path: Path) -> str | None:
    if path.is_symlink():
        return "it is a symbolic link"
    real = path.resolve()
    for place, name in ((Path.cwd(), "the current folder"), (_home(), "the home folder")):
        if place is not None and place.resolve().is_relative_to(real):
            return f"it is {name}, or holds it"
    if not is_run_folder(path):
        return "it is not a run folder"
    status = StatusFile(path / STATUS)
    if status.is_alive():
        return f"process {(status.read() or {}).get('pid')} is writing to it"
    # Many a project has a config.yaml: on that alone, nothing that is not of a run may be in the folder.
    if {entry.name for entry in path.iterdir()} - NAMES and not _was_written_by_a_run(path):
        return "it holds files that are not of a run"
    return None


def _was_written_by_a_run(path: Path) -> bool:
    return "heartbeat" in (StatusFile(path / STATUS).read() or {}) or (path / METRICS).is_file()


def _home() -> Path | None:
    try:
        return Path.home()
    except RuntimeError:
        return None
