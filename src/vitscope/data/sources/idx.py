"""IDX files, the layout of MNIST, Fashion-MNIST, KMNIST and EMNIST: one file of pictures, one of labels, per part.

Big-endian: two zero bytes, the type (8: bytes), the number of axes, one 32-bit size per axis, then the bytes.
Pictures are (N, H, W), labels (N,). Often packed with gzip. Source: yann.lecun.com/exdb/mnist.
"""

from __future__ import annotations

import gzip
import math
import re
import struct
import zlib
from pathlib import Path
from typing import BinaryIO, NamedTuple, Self, cast

import numpy as np

from vitscope.core.errors import DataError, expected
from vitscope.data.config.data import PIXEL_LIMIT, DataConfig
from vitscope.data.decode import bad_image
from vitscope.data.sources.arrays import ArraySource, Block
from vitscope.data.splits import part_called

IMAGE_NAME = re.compile(r"(?P<stem>.*?)images(?P<mark>[-_.]?)idx3(?P<rest>[-_.]?ubyte)(\.gz)?", re.IGNORECASE)
PLACES = ("", "raw", "MNIST/raw")
"""Folders below the one given: torchvision keeps its files in MNIST/raw."""
TYPE_BYTES = 8
GZIP_AT_MOST = 1032
"""Deflate never packs better than this, so a header that promises more is damaged or a trap."""
READ_AT_ONCE_BYTES = 2**20


class _Pair(NamedTuple):
    images: Path
    labels: Path | None
    prefix: str
    part: str | None


class IdxFiles(ArraySource):
    """MNIST and its kin."""

    kind = "IDX files (MNIST layout)"

    @classmethod
    def looks_like(cls, path: Path) -> bool:
        try:
            return bool(_pairs(Path(path)))
        except (OSError, ValueError):
            return False

    @classmethod
    def open(cls, path: Path, config: DataConfig) -> Self:
        del config
        pairs = _pairs(Path(path))
        prefixes = sorted({pair.prefix for pair in pairs})
        if len(prefixes) != 1:
            found = ", ".join(repr(prefix) for prefix in prefixes)
            raise DataError(
                f"several data sets in one folder: {found}" if pairs else "no IDX files of pictures found",
                where=str(path),
                fix="give the path of the training pictures' file" if pairs else "expected train-images-idx3-ubyte.gz",
            )
        blocks = []
        for pair in pairs:
            if pair.labels is None:
                raise DataError(
                    "pictures without labels", where=str(pair.images), fix="put the ...labels-idx1-ubyte file beside"
                )
            pixels, labels = read_idx(pair.images, axes=3), read_idx(pair.labels, axes=1)
            blocks.append(Block(pair.images.name, pair.part, pixels, labels))
        notes = []
        if "emnist" in prefixes[0].lower():
            notes.append("EMNIST stores its pictures with rows and columns swapped; they are used as stored")
        return cls(str(path), blocks, notes=notes)


def read_idx(path: Path, *, axes: int) -> np.ndarray:
    """The array in one file, of bytes. Reads no more than its header promises, and one byte."""
    try:
        size_bytes = path.stat().st_size
        with path.open("rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"  # by content: browsers unpack a file and keep its name
            raw.seek(0)
            if not packed:
                return _read(raw, path, axes, size_bytes)
            with gzip.GzipFile(fileobj=raw) as file:
                return _read(cast(BinaryIO, file), path, axes, size_bytes * GZIP_AT_MOST)
    except (OSError, EOFError, zlib.error, MemoryError) as error:
        reason = "it ends too early" if isinstance(error, EOFError) else bad_image(error).what
        raise _damaged(path, f"the file cannot be read: {reason}") from None


def _read(file: BinaryIO, path: Path, axes: int, at_most_bytes: int) -> np.ndarray:
    header = file.read(4 + 4 * axes)
    if len(header) < 4 + 4 * axes:
        raise _damaged(path, f"it ends too early: {len(header)} bytes are no header")
    if header[:4] != bytes((0, 0, TYPE_BYTES, axes)):
        raise _damaged(path, expected("magic number", f"0000080{axes}", header[:4].hex()))
    shape = struct.unpack(f">{axes}I", header[4:])
    total = math.prod(shape)
    if math.prod(shape[1:]) > PIXEL_LIMIT:
        raise _damaged(path, f"pictures of {shape[1]:,} x {shape[2]:,} pixels")
    if total > at_most_bytes:
        raise _damaged(path, f"it ends too early: its header promises {total:,} bytes")
    values = np.empty(total, dtype=np.uint8)
    view, filled = memoryview(values.data), 0
    while filled < total:
        count = file.readinto(view[filled : filled + READ_AT_ONCE_BYTES])  # type: ignore[attr-defined]
        if not count:
            raise _damaged(path, f"it ends too early: {filled:,} of {total:,} bytes")
        filled += count
    if file.read(1):
        raise _damaged(path, f"more than the {total:,} bytes its header promises")
    return values.reshape(shape)


def _damaged(path: Path, what: str) -> DataError:
    return DataError(what, where=str(path), fix="get the file again: it is damaged or no IDX file of this kind")


def _pairs(path: Path) -> list[_Pair]:
    """Files of pictures with their files of labels, training first. A path to one such file picks its data set."""
    if path.is_file():
        one = IMAGE_NAME.fullmatch(path.name)
        return [pair for pair in _pairs(path.parent) if pair.prefix == _named(one["stem"])[0]] if one else []
    for place in PLACES:
        folder = path / place
        names = {file.name.lower(): file for file in folder.iterdir() if file.is_file()} if folder.is_dir() else {}
        found: dict[tuple[str, str | None], _Pair] = {}
        for name in sorted(names):  # without .gz sorts first, and is kept: it is read more quickly
            match = IMAGE_NAME.fullmatch(name)
            if match is None:
                continue
            prefix, part = _named(match["stem"])
            label = f"{match['stem']}labels{match['mark']}idx1{match['rest']}"
            file = _Pair(names[name], names.get(label) or names.get(f"{label}.gz"), prefix, part)
            found.setdefault((prefix, part), file)
        if found:
            return sorted(found.values(), key=lambda pair: (part_called(pair.part or "") != "train", pair.images.name))
    return []


def _named(stem: str) -> tuple[str, str | None]:
    """'emnist-letters-train-' -> ('emnist-letters', 'train')."""
    words = re.split(r"[-_.]", stem.lower().strip("-_."))
    if part_called(words[-1]) is None:
        return "-".join(words), None
    return "-".join(words[:-1]), words[-1]
