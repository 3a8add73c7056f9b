"""NumPy's .npz: arrays in a zip archive. What their headers say is compared with what is there before they are read."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vitscope.core.errors import VitscopeError
from vitscope.weights.bounds import first_line, refuse_inflation, refuse_names, refuse_shape, unreadable

Shape = tuple[int, ...]
NUMBERS = "fiub"
"""NumPy's letters for the kinds of numbers a tensor may hold."""


def npz_shapes(path: Path) -> dict[str, Shape]:
    """Shapes from the headers alone; arrays of objects, which are pickles, are refused."""
    shapes: dict[str, Shape] = {}
    try:
        with zipfile.ZipFile(path) as archive:
            refuse_inflation(path, archive)
            for entry in archive.infolist():
                name = entry.filename.removesuffix(".npy")
                refuse_names(path, [name])
                if name in shapes:
                    raise unreadable(path, f"{name} stands in it twice")
                shapes[name] = _shape(path, archive, entry)
    except VitscopeError:
        raise
    except Exception as error:  # a damaged archive or header raises whatever its damage leads to
        raise unreadable(path, first_line(error)) from None
    return shapes


def _shape(path: Path, archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Shape:
    name = entry.filename
    with archive.open(entry) as file:
        shape, _, dtype = _header(file)
        begun = file.tell()
    if dtype.hasobject:
        raise unreadable(path, f"{name} holds objects, which would have to be unpickled", fix="ask for arrays alone")
    refuse_shape(path, name, shape)
    told = begun + math.prod(shape) * dtype.itemsize
    if told != entry.file_size:
        raise unreadable(path, f"{name} says it has {told:,} bytes and has {entry.file_size:,}")
    return shape


def _header(file: Any) -> tuple[Shape, bool, np.dtype]:
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(file)
    if version in ((2, 0), (3, 0)):
        return np.lib.format.read_array_header_2_0(file)
    raise ValueError(f"an array of version {version[0]}.{version[1]}, which is unknown")


def read_array(path: Path, name: str) -> Tensor:
    """One array as a tensor. Its header was looked over by `npz_shapes`."""
    try:
        with zipfile.ZipFile(path) as archive:
            inside = f"{name}.npy" if f"{name}.npy" in archive.NameToInfo else name
            with archive.open(inside) as file:
                array = np.lib.format.read_array(file, allow_pickle=False)
    except Exception as error:  # damaged zlib streams and checksums raise each in their own way
        raise unreadable(path, f"{name}: {first_line(error)}") from None
    kind = array.dtype
    if kind.kind == "V" and kind.itemsize == 2 and kind.names is None and kind.subdtype is None:
        # bf16, which NumPy has no word for
        return torch.from_numpy(array.view(np.uint16).astype(np.int32) << 16).view(torch.float32).bfloat16()
    if kind.kind not in NUMBERS or kind.itemsize > 8:
        raise unreadable(path, f"{name} is of type {kind}, which no model here has")
    return torch.from_numpy(np.ascontiguousarray(array, dtype=kind.newbyteorder("="))).reshape(array.shape)
