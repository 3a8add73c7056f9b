"""`--overwrite`: a run in the place of another. The old one is set aside until the new one has proved that it can
begin, and nothing but a run is ever replaced."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from vitscope.core.errors import UsageError, VitscopeError
from vitscope.core.run_layout import LOCK, METRICS, NAMES, REPLACED, STATUS, is_run_folder
from vitscope.core.status_file import StatusFile


def refuse_to_overwrite(path: Path) -> None:
    """Unless `path` is a run that nobody is writing."""
    reason = _reason_to_refuse(path)
    if reason is not None:
        raise UsageError(
            f"--overwrite will not replace {path}: {reason}", fix="choose another --out, or delete it yourself"
        )


def set_aside(path: Path) -> None:
    """Hide what is in the run folder `path`. What an overwrite left that was killed has come nowhere, and goes; the
    run it had set aside stays so."""
    aside = path / REPLACED
    try:
        if aside.exists():
            _remove(_entries(path))
        else:
            aside.mkdir()
            # The status goes last: if this is interrupted, the folder is still known as a run.
            with _all_or_none(aside, path):
                for entry in sorted(_entries(path), key=lambda entry: entry.name == STATUS):
                    entry.rename(aside / entry.name)
    except OSError as error:
        raise VitscopeError(
            f"cannot replace the old run: {error}", where=str(path), fix="choose another --out"
        ) from error


def put_back(path: Path) -> None:
    """The run that was set aside, in the place of what has been written since."""
    _remove(_entries(path))
    for entry in sorted((path / REPLACED).iterdir()):
        entry.rename(path / entry.name)
    (path / REPLACED).rmdir()


def forget(path: Path) -> None:
    """The run that was set aside, for good."""
    shutil.rmtree(path / REPLACED, ignore_errors=True)


@contextlib.contextmanager
def _all_or_none(aside: Path, path: Path) -> Iterator[None]:
    """Half a run must not be taken for one that was set aside."""
    try:
        yield
    except OSError:
        for entry in aside.iterdir():
            entry.rename(path / entry.name)
        aside.rmdir()
        raise


def _entries(path: Path) -> list[Path]:
    return [entry for entry in path.iterdir() if entry.name not in (LOCK, REPLACED)]


def _remove(entries: list[Path]) -> None:
    for entry in sorted(entries, key=lambda entry: entry.name == STATUS):
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


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
