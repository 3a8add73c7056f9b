"""A torch archive without its numbers: by it torch tells which entry each tensor is stored in.

Of the archive itself torch computes where numbers should lie, as its own writer would have put them. Whoever packs it
anew puts them elsewhere, or in another order; so it is shown the same names with nothing in them, and the true places
come from the archive's own directory.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from dataclasses import dataclass

from vitscope.core.errors import VitscopeError
from vitscope.weights.bounds import EXPORTED, WEIGHTS_WANTED, first_line, refuse_inflation, unreadable
from vitscope.weights.opened import OpenFile
from vitscope.weights.zip_entries import begins

TOLD = ("/data.pkl", "/version", "/byteorder")
"""The entries whose contents torch is shown. What begins with a dot it is not: `.format_version` makes it compute where
an entry begins, and without that it asks the archive."""

PROGRAM = ("/archive_format", "serialized_exported_program.json")
"""What torch.export puts into its archives, now and formerly."""


@dataclass(frozen=True)
class Outline:
    archive: bytes
    """All names, and contents only where the tensors are told of."""
    places: dict[int, tuple[int, int]]
    """Where an entry of numbers begins in `archive` -> where it does in the file, and its bytes."""


def outline_of(opened: OpenFile) -> Outline | None:
    """None where numbers do not lie in the file as they do in memory: compressed, or in another order of bytes."""
    try:
        opened.file.seek(0)
        with zipfile.ZipFile(opened.file) as archive:
            refuse_inflation(opened, archive)
            _refuse_without_weights(opened, archive.namelist())
            numbers = [entry for entry in archive.infolist() if "/data/" in entry.filename]
            order = next((name for name in archive.namelist() if name.endswith("/byteorder")), None)
            if order is not None and archive.read(order).strip() != b"little":
                return None
            if any(entry.compress_type != zipfile.ZIP_STORED for entry in numbers):
                return None
            if any(entry.flag_bits & 1 for entry in numbers):  # encrypted
                return None
            hollow = _hollow(archive)
        with zipfile.ZipFile(io.BytesIO(hollow)) as outline:
            shown = {entry.filename: begins(_reader(hollow), entry) for entry in outline.infolist()}
        places = {shown[entry.filename]: (begins(opened.read_at, entry), entry.file_size) for entry in numbers}
        return Outline(hollow, places)
    except VitscopeError:
        raise
    except Exception as error:  # a damaged archive raises whatever its damage leads to
        raise unreadable(opened.path, first_line(error)) from None


def _refuse_without_weights(opened: OpenFile, names: list[str]) -> None:
    """An archive may be anything; torch would tell of the entry it missed first."""
    if any(name.endswith(TOLD[0]) for name in names):
        return
    if any(name.endswith(PROGRAM) for name in names):
        raise unreadable(opened.path, "a program of torch.export (.pt2), a graph to be run", fix=EXPORTED)
    raise unreadable(opened.path, "an archive that holds no weights", fix=WEIGHTS_WANTED)


def _hollow(archive: zipfile.ZipFile) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as outline:
        for name in archive.namelist():
            if "/." not in name:
                outline.writestr(zipfile.ZipInfo(name), archive.read(name) if name.endswith(TOLD) else b"")
    return written.getvalue()


def _reader(content: bytes) -> Callable[[int, int], bytes]:
    return lambda place, count: content[place : place + count]
