"""NumPy's .npz: arrays in a zip archive. What their headers say is compared with what is there before they are read."""

from __future__ import annotations

import math
import zipfile
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vitscope.core.errors import VitscopeError
from vitscope.weights.bounds import (
    Shape,
    first_line,
    refuse_inflation,
    refuse_many,
    refuse_names,
    refuse_shape,
    unreadable,
)
from vitscope.weights.opened import OpenFile
from vitscope.weights.zip_entries import begins

NUMBERS = "fiub"
"""NumPy's letters for the kinds of numbers a tensor may hold."""


@dataclass(frozen=True)
class Place:
    """Where an array lies in a .npz file, and what it is."""

    entry: str
    shape: Shape
    dtype: np.dtype
    by_columns: bool
    begin: int | None
    """Where its numbers begin in the file; None where they are compressed."""
    header: bytes
    """All before them."""
    crc: int
    """Of header and numbers."""


def npz_places(opened: OpenFile) -> dict[str, Place]:
    """The arrays of a file by name, from their headers alone; arrays of objects, which are pickles, are refused."""
    path, places = opened.path, dict[str, Place]()
    try:
        with zipfile.ZipFile(opened.file) as archive:
            refuse_many(path, len(archive.namelist()))
            refuse_inflation(opened, archive)
            for entry in archive.infolist():
                name = entry.filename.removesuffix(".npy")
                refuse_names(path, [name])
                if name in places:
                    raise unreadable(path, f"{name} stands in it twice")
                places[name] = _place(opened, archive, entry)
    except VitscopeError:
        raise
    except Exception as error:  # a damaged archive or header raises whatever its damage leads to
        raise unreadable(path, first_line(error)) from None
    return places


def _place(opened: OpenFile, archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Place:
    path, name = opened.path, entry.filename
    with archive.open(entry) as file:
        shape, by_columns, dtype = _header(file)
        length = file.tell()
        file.seek(0)
        header = file.read(length)
    if dtype.hasobject:
        raise unreadable(path, f"{name} holds objects, which would have to be unpickled", fix="ask for arrays alone")
    refuse_shape(path, name, shape)
    told = length + math.prod(shape) * dtype.itemsize
    if told != entry.file_size:
        raise unreadable(path, f"{name} says it has {told:,} bytes and has {entry.file_size:,}")
    begin = None
    if entry.compress_type == zipfile.ZIP_STORED and not entry.flag_bits & 1:  # neither compressed nor encrypted
        begin = begins(opened.read_at, entry) + length
    return Place(name, shape, dtype, by_columns, begin, header, entry.CRC)


def _header(file: Any) -> tuple[Shape, bool, np.dtype]:
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(file)
    if version in ((2, 0), (3, 0)):
        return np.lib.format.read_array_header_2_0(file)
    raise ValueError(f"an array of version {version[0]}.{version[1]}, which is unknown")


def read_array(opened: OpenFile, name: str, place: Place) -> Tensor:
    """One array as a tensor."""
    path, kind = opened.path, place.dtype
    is_bf16 = kind.kind == "V" and kind.itemsize == 2 and kind.names is None and kind.subdtype is None
    if not is_bf16 and (kind.kind not in NUMBERS or kind.itemsize > 8):
        raise unreadable(path, f"{name} is of type {kind}, which no model here has")
    try:
        array = _numbers(opened, place)
    except Exception as error:  # damaged zlib streams and checksums raise each in their own way
        opened.refuse_change()
        raise unreadable(path, f"{name}: {first_line(error)}") from None
    if is_bf16:  # which NumPy has no word for
        wide = array.view(np.uint16).astype(np.int32) << 16
        return torch.from_numpy(np.ascontiguousarray(wide)).view(torch.float32).bfloat16().reshape(place.shape)
    return torch.from_numpy(np.ascontiguousarray(array, dtype=kind.newbyteorder("="))).reshape(place.shape)


def _numbers(opened: OpenFile, place: Place) -> np.ndarray:
    """Straight to their place where they are not compressed: NumPy would open the archive anew and copy them twice."""
    if place.begin is None:
        with opened.lock, zipfile.ZipFile(opened.file) as archive, archive.open(place.entry) as file:
            return np.lib.format.read_array(file, allow_pickle=False)
    array = np.empty(place.shape[::-1] if place.by_columns else place.shape, place.dtype)
    room = array.reshape(-1).view(np.uint8)
    if room.size and not opened.read_into(place.begin, room.data):
        raise ValueError("the file ends within it")
    if zlib.crc32(room.data, zlib.crc32(place.header)) != place.crc:
        raise ValueError("its checksum is wrong")
    return array.T if place.by_columns else array
