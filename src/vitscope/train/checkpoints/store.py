"""The checkpoints of a run: each written all or not at all, proved before it is used, the old ones pruned.

step-000123/   one checkpoint (`files.py`); it counts once its COMPLETE stands
last, best     one line each, naming a step folder; replaced in one step
"""

from __future__ import annotations

import errno
import logging
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from vitscope.core.errors import expected
from vitscope.core.files import write_atomically
from vitscope.core.suggest import did_you_mean
from vitscope.train.checkpoints import files
from vitscope.train.checkpoints.content import CheckpointError, NotFiniteError, meta_bytes, model_bytes, trainer_bytes

__all__ = ["Checkpoint", "CheckpointError", "Checkpoints", "NotFiniteError"]

LAST, BEST = "last", "best"
_STEP = re.compile(r"step-(\d{6,})")
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_log = logging.getLogger("vitscope")


@dataclass(frozen=True)
class Checkpoint:
    """One proved checkpoint. What is read from it is proved again: minutes may lie between."""

    path: Path
    step: int
    meta: dict[str, Any]

    def model(self) -> dict[str, Tensor]:
        """The weights, on the CPU, where they lie in the file: of what is not read, no memory is taken."""
        try:
            return load_file(files.proved(self.path, files.MODEL))
        except (SafetensorError, OSError) as error:
            raise files.damaged(self.path / files.MODEL, f"cannot be read: {error}") from None

    def trainer(self) -> dict[str, Any]:
        """Everything else, tensors as those of `model`. Nothing in the file is run."""
        path = files.proved(self.path, files.TRAINER)
        try:
            state = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        except Exception as error:  # torch's reader raises what it likes; its text would advise to trust the file
            raise files.damaged(path, "is refused: not tensors and plain values only") from error
        if not isinstance(state, dict):
            raise files.damaged(path, expected("content", "a dict", type(state).__name__))
        return state


class Checkpoints:
    """The checkpoints in one folder. One process at a time writes; anyone may read."""

    def __init__(self, folder: Path, *, keep: int) -> None:
        if keep < 1:
            raise CheckpointError(expected("keep", "a positive integer", keep), fix="set --checkpoint.keep")
        self.folder = Path(folder)
        self.keep = keep

    def save(
        self, step: int, model: Mapping[str, Tensor], trainer: Mapping[str, Any], meta: Mapping[str, Any]
    ) -> Checkpoint:
        """Write the state after `step` updates. On any failure the older checkpoints are as they were.

        A state with NaN or infinity in it raises NotFiniteError before anything is written. A checkpoint of this step
        that holds the same already is left alone; another one, or a damaged one, is replaced.
        """
        if step < 0:
            raise CheckpointError(expected("step", "0 or more", step), where="saving a checkpoint")
        contents: dict[str, bytes | memoryview] = {
            files.MODEL: model_bytes(model),
            files.TRAINER: trainer_bytes(trainer),
        }
        contents[files.META] = meta_bytes(step, meta, contents)
        place = self.folder / _name(step)
        need = sum(map(len, contents.values()))
        with self._said_plainly(step, need):
            if not files.holds(place, contents[files.META]):
                self.folder.mkdir(parents=True, exist_ok=True)
                _refuse_to_fill(self.folder, need)
                files.put(place, contents)
            self._point(LAST, step)
        self._prune()
        return Checkpoint(place, step, files.described(place)[1])

    def mark_best(self, step: int) -> None:
        """Let `best` name this step; it is kept until another one is marked."""
        place = self.folder / _name(step)
        files.described(place)
        with self._said_plainly(step, len(place.name)):
            self._point(BEST, step)
        self._prune()

    def newest(self, *, before: int | None = None) -> Checkpoint | None:
        """The newest checkpoint (of a step `before` this one) of which every byte is right. Worse ones are named in the
        log and passed over."""
        for step in reversed(self._steps()):
            if before is not None and step >= before:
                continue
            try:
                return self._proved(self.folder / _name(step))
            except CheckpointError as error:
                _log.warning("the checkpoint %s is passed over: %s (%s)", _name(step), error.what, error.where)
        return None

    def best(self) -> Checkpoint | None:
        """The one marked best, if there is one and every byte of it is right."""
        if not (self.folder / BEST).exists():
            return None
        try:
            return self.open(BEST)
        except CheckpointError as error:
            _log.warning("the best checkpoint cannot be used: %s (%s)", error.what, error.where)
            return None

    def open(self, wish: str | Path) -> Checkpoint:
        """Exactly this one: "step-000123", "last", "best", or a path to one of these. Never another instead."""
        try:
            path = self._place_of(wish)
        except (OSError, RuntimeError) as error:  # a name too long, a closed folder, the home of nobody
            raise CheckpointError(f"there is no checkpoint '{wish}': {error}", where=str(self.folder)) from None
        if path is None:
            there = [_name(step) for step in self._steps()]
            others = f"there are {', '.join(there)}" if there else "there are none"
            near = did_you_mean(Path(wish).name, [*there, LAST, BEST])
            raise CheckpointError(f"there is no checkpoint '{wish}'", where=str(self.folder), fix=near or others)
        return self._proved(path)

    def drop_after(self, step: int) -> list[str]:
        """Take away what is newer than `step`, and name it: training goes another way from there."""
        gone = [_name(newer) for newer in self._steps() if newer > step]
        try:
            for pointer in (self.folder / LAST, self.folder / BEST):
                with suppress(CheckpointError):
                    if pointer.exists() and _number(_pointed(pointer)) > step:
                        pointer.unlink()
            for name in gone:
                files.remove(self.folder / name)
            if gone and _is_complete(self.folder / _name(step)):
                self._point(LAST, step)
        except OSError as error:
            raise CheckpointError(
                f"checkpoints newer than step {step} cannot be removed: {error.strerror or error}",
                where=str(self.folder),
                fix="remove them yourself, or train into another folder (--out)",
            ) from error
        return gone

    def sweep(self) -> None:
        """Take away what a killed process left: unfinished checkpoints, under a hidden name or their own."""
        if not self.folder.is_dir():
            return
        for path in sorted(self.folder.iterdir()):
            with suppress(OSError):
                if files.LEFT_BY_WRITE.fullmatch(path.name) and path.is_file():
                    path.unlink()
                elif not path.is_dir():
                    continue
                elif files.TEMPORARY.fullmatch(path.name) or (_number(path.name) >= 0 and not _is_complete(path)):
                    files.remove(path)

    def _place_of(self, wish: str | Path) -> Path | None:
        """The folder that is meant, whole or not."""
        path = Path(wish).expanduser()
        if len(path.parts) == 1 and (self.folder / path).exists():
            path = self.folder / path
        if path.name in (LAST, BEST) and path.is_file():
            path = path.with_name(_pointed(path))
        is_one = path.is_dir() and (_number(path.name) >= 0 or (path / files.META).exists())
        return path if is_one else None

    def _proved(self, path: Path) -> Checkpoint:
        step, meta = files.prove(path)
        if _number(path.name) not in (step, -1):
            raise files.damaged(path, f"holds step {step} according to its {files.META}")
        return Checkpoint(path, step, meta)

    def _point(self, pointer: str, step: int) -> None:
        write_atomically(self.folder / pointer, f"{_name(step)}\n".encode())
        files.flush_folder(self.folder)

    def _steps(self) -> list[int]:
        """Of all step folders, finished or not, in order."""
        try:
            numbers = (_number(path.name) for path in self.folder.iterdir() if path.is_dir())
            return sorted(number for number in numbers if number >= 0)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise CheckpointError(
                f"the checkpoints cannot be looked for: {error.strerror or error}",
                where=str(self.folder),
                fix="see that this is a folder that can be read",
            ) from None

    def _prune(self) -> None:
        """Leave the newest `keep`, the last saved and the best."""
        try:
            named = [_pointed(path) for path in (self.folder / LAST, self.folder / BEST) if path.exists()]
            whole = [_name(step) for step in self._steps() if _is_complete(self.folder / _name(step))]
            for name in whole[: -self.keep]:
                if name not in named:
                    files.remove(self.folder / name)
        except (OSError, CheckpointError) as error:
            # Rather too many than the best one lost.
            _log.warning("old checkpoints stay in %s: %s", self.folder, error)

    @contextmanager
    def _said_plainly(self, step: int, need: int) -> Iterator[None]:
        """An OSError becomes an error a person can act on."""
        try:
            yield
        except OSError as error:
            room = f"it needs {need:,} bytes"
            with suppress(OSError):
                room += f", {shutil.disk_usage(self.folder).free:,} are free"
            raise CheckpointError(
                f"the checkpoint of step {step} cannot be saved: {error.strerror or error} ({room})",
                where=str(self.folder),
                fix="make room on the disk, or keep fewer checkpoints (--checkpoint.keep)"
                if error.errno in _NO_ROOM
                else "see that this folder can be written to; the older checkpoints are untouched",
            ) from error


def _name(step: int) -> str:
    return f"step-{step:06d}"


def _number(name: str) -> int:
    """The step a folder's name says, or -1.

    >>> _number("step-000123"), _number("step-0000123"), _number("last")
    (123, -1, -1)
    """
    match = _STEP.fullmatch(name)
    return int(match[1]) if match and _name(int(match[1])) == name else -1


def _pointed(pointer: Path) -> str:
    """The name of the step folder that `last` or `best` holds."""
    try:
        name = pointer.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise files.damaged(pointer, f"cannot be read: {error}") from None
    if _number(name) < 0:
        raise files.damaged(pointer, expected("names no checkpoint", "a name such as step-000123", repr(name[:40])))
    return name


def _is_complete(folder: Path) -> bool:
    return (folder / files.COMPLETE).is_file()


def _refuse_to_fill(folder: Path, need: int) -> None:
    """A disk filled to the last byte would stop others too, so what cannot be finished is not begun."""
    if shutil.disk_usage(folder).free < need:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
