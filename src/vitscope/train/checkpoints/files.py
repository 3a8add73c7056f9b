"""The folder of one checkpoint: how its files are written, proved whole, read and removed.

model.safetensors   the weights
trainer.pt          everything else: tensors and plain values, read without running anything (`weights_only=True`)
meta.json           format, step, size and sha256 of the two above, and what the caller wants to know before it loads
COMPLETE            sha256 of meta.json, written last: so no bit of a checkpoint can change unnoticed
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from vitscope.core import strict_json
from vitscope.core.errors import expected
from vitscope.core.files import write_atomically
from vitscope.train.checkpoints.content import FORMAT, CheckpointError, sha256
from vitscope.weights.place import exchange

MODEL, TRAINER, META, COMPLETE = "model.safetensors", "trainer.pt", "meta.json", "COMPLETE"
OWN = (COMPLETE, META, TRAINER, MODEL)
"""In the order in which they go: without COMPLETE the rest no longer counts."""
TEMPORARY = re.compile(r"\.step-\d{6,}\.[0-9a-f]{16}\.tmp")
"""What `put` leaves behind when it is killed."""
LEFT_BY_WRITE = re.compile(r"\.[0-9a-f]{16}\.tmp")
"""What `write_atomically` leaves behind when it is killed."""
_NO_FOLDER_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES, errno.EPERM)


def put(place: Path, contents: Mapping[str, bytes | memoryview]) -> None:
    """A whole checkpoint at `place`, in an order that neither a kill nor a power cut can turn against us."""
    temporary = place.with_name(f".{place.name}.{secrets.token_hex(8)}.tmp")
    made = temporary
    try:
        temporary.mkdir()
        for name, content in contents.items():
            write(temporary / name, content)
        flush_folder(temporary)
        if place.exists():
            # Sealed before they change places: at no moment is there neither the old nor the new one.
            seal(temporary, contents[META])
            if not exchange(temporary, place):
                remove(place)
                temporary.rename(place)
        else:
            temporary.rename(place)
            made = place
            flush_folder(place.parent)
            seal(place, contents[META])
        flush_folder(place.parent)
    except BaseException:
        with suppress(OSError):
            remove(made)
        raise
    with suppress(OSError):  # what stood here before, if the two changed places; else `sweep` tries again
        remove(temporary, strangers_to=place)


def write(path: Path, content: bytes | memoryview) -> None:
    """A new file, on the disk when this returns."""
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def flush_folder(folder: Path) -> None:
    """New names in `folder` are on the disk when this returns, where the system can promise it."""
    try:
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise


def seal(folder: Path, meta: bytes | memoryview) -> None:
    """Say that the checkpoint in `folder` is whole."""
    write_atomically(folder / COMPLETE, (sha256(meta) + "\n").encode())
    flush_folder(folder)


def remove(folder: Path, strangers_to: Path | None = None) -> None:
    """Take a checkpoint away, COMPLETE first. What a stranger put into the folder stays there, and the folder with it,
    or moves to `strangers_to`."""
    if folder.is_symlink() or not folder.is_dir():
        return
    for path in [*(folder / name for name in OWN), *folder.iterdir()]:
        if path.name in OWN or LEFT_BY_WRITE.fullmatch(path.name):
            path.unlink(missing_ok=True)
        elif strangers_to is not None:
            path.rename(strangers_to / path.name)
    if not any(folder.iterdir()):
        folder.rmdir()


def described(folder: Path) -> tuple[int, dict[str, Any], dict[str, tuple[int, str]]]:
    """Step, the caller's meta, and (bytes, sha256) of each file, as meta.json has them, proved by COMPLETE."""
    sealed = _read(folder / COMPLETE, missing="is missing: the checkpoint was never finished")
    content = _read(folder / META)
    if sealed != (sha256(content) + "\n").encode():
        raise damaged(folder / META, f"sha256 mismatch: not what {COMPLETE} says")
    try:
        meta = json.loads(content)
        found = meta["format"]
        if found != FORMAT:
            raise CheckpointError(expected("format", FORMAT, found), where=str(folder / META), fix="update vitscope")
        files = {
            name: (int(meta["files"][name]["bytes"]), str(meta["files"][name]["sha256"])) for name in (MODEL, TRAINER)
        }
        return int(meta["step"]), dict(strict_json.decode(meta["meta"])), files
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise damaged(folder / META, f"is not a checkpoint's ({type(error).__name__}: {error})") from None


def prove(folder: Path) -> tuple[int, dict[str, Any]]:
    """Step and meta of the checkpoint in `folder`, every byte of which is as it was written; else CheckpointError."""
    step, meta, files = described(folder)
    for name, (size, digest) in files.items():
        _prove_file(folder / name, size, digest)
    return step, meta


def holds(folder: Path, meta: bytes | memoryview) -> bool:
    """Whether `folder` is a whole checkpoint with exactly this meta.json, and so with exactly these files."""
    try:
        prove(folder)
        return (folder / META).read_bytes() == meta
    except (CheckpointError, OSError):
        return False


def proved(folder: Path, name: str) -> Path:
    """The path of one file, after a look at its sha256: it may have changed since it was last proved."""
    _prove_file(folder / name, *described(folder)[2][name])
    return folder / name


def damaged(path: Path, how: str) -> CheckpointError:
    return CheckpointError(
        f"{path.name} {how}", where=str(path), fix="use another checkpoint; --resume takes the newest good one"
    )


def _prove_file(path: Path, size: int, digest: str) -> None:
    """Bit by bit: the file may be larger than the memory."""
    try:
        if not path.is_file():
            raise damaged(path, "is missing")
        found = path.stat().st_size
        if found != size:
            raise damaged(path, f"sha256 mismatch: it has {found:,} bytes, {size:,} were written")
        with path.open("rb") as file:
            sums = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise damaged(path, f"cannot be read: {error.strerror or error}") from None
    if sums != digest:
        raise damaged(path, f"sha256 mismatch: {sums[:12]}..., {digest[:12]}... was written")


def _read(path: Path, missing: str = "is missing") -> bytes:
    try:
        if not path.is_file():
            raise damaged(path, missing)
        return path.read_bytes()
    except OSError as error:
        raise damaged(path, f"cannot be read: {error.strerror or error}") from None
