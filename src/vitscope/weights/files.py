"""Tensors in files: safetensors, torch's own, NumPy's .npz, whole or in shards. Nothing is ever run that a file holds.

What a file is, its content says, not its name. A tensor is read when it is asked for and belongs to whoever asked:
reading a model takes the memory of the model, not twice that.
"""

from __future__ import annotations

import argparse
import json
import pickle
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from vitscope.core.errors import VitscopeError

Shape = tuple[int, ...]

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
"""safetensors' names of the types a model here may have."""
HELD_WITHIN = ("state_dict_ema", "model_ema", "teacher", "state_dict", "model", "student")
"""Where trainers keep the weights inside a checkpoint, the ones to prefer first."""


class Stored(Mapping[str, Tensor]):
    """Tensors by name, in a file or several. Asking for one reads it."""

    def __init__(
        self,
        shapes: Mapping[str, Shape],
        read: Callable[[str], Tensor],
        *,
        files: tuple[Path, ...],
        remarks: tuple[str, ...] = (),
    ) -> None:
        self.shapes = dict(shapes)
        self.files = files
        self.remarks = remarks
        """What a person should know of how they lay there."""
        self._read = read

    def __getitem__(self, name: str) -> Tensor:
        if name not in self.shapes:
            raise KeyError(name)
        return self._read(name)

    def __contains__(self, name: object) -> bool:
        return name in self.shapes

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)

    def renamed(self, new_names: Mapping[str, str]) -> Stored:
        """The same tensors under other names: {old: new}. What is not named keeps its name."""
        old_names = {new_names.get(name, name): name for name in self.shapes}
        shapes = {new: self.shapes[old] for new, old in old_names.items()}
        return Stored(shapes, lambda name: self[old_names[name]], files=self.files, remarks=self.remarks)


def read_file(path: str | Path) -> Stored:
    """The tensors of a weights file, or of all shards its index names."""
    path = Path(path)
    if path.name.endswith(".index.json"):
        return _read_shards(path)
    try:
        with path.open("rb") as file:
            beginning = file.read(9)
    except OSError as error:
        raise _unreadable(path, error.strerror or error) from None
    if not beginning:
        raise _unreadable(path, "an empty file")
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            is_numpy = any(name.endswith(".npy") for name in archive.namelist())
        return _read_npz(path) if is_numpy else _read_torch(path, mapped=True)
    if beginning[8:9] == b"{" or path.suffix == ".safetensors":
        return _read_safetensors(path)
    return _read_torch(path, mapped=False)


# --- safetensors ------------------------------------------------------------------------------------------------


def _read_safetensors(path: Path) -> Stored:
    try:
        with safe_open(path, framework="pt"):  # checks the header: its size, the offsets, no gap and no overlap
            pass
        header, begin = _header(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    for name, entry in header.items():
        if entry["dtype"] not in DTYPES:
            raise _unreadable(path, f"{name} is of type {entry['dtype']}, which no model here has")

    def read(name: str) -> Tensor:
        # Not mapped: a mapped file counts twice while it is copied, and what happens to it would happen to the model.
        entry = header[name]
        tensor = torch.empty(entry["shape"], dtype=DTYPES[entry["dtype"]])
        first, last = entry["data_offsets"]
        if last > first:
            room = tensor.reshape(-1).view(torch.uint8).numpy()
            with path.open("rb") as file:
                file.seek(begin + first)
                if file.readinto(room.data) != last - first:
                    raise _unreadable(path, f"it ends within {name}")
        return tensor

    return Stored({name: tuple(entry["shape"]) for name, entry in header.items()}, read, files=(path,))


def _header(path: Path) -> tuple[dict[str, Any], int]:
    """Name -> dtype, shape and place of each tensor, and where the first begins."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
    header.pop("__metadata__", None)
    return header, 8 + size


# --- torch ------------------------------------------------------------------------------------------------------


def _read_torch(path: Path, *, mapped: bool) -> Stored:
    try:
        # A namespace of arguments lies in most trainers' checkpoints. It is made, not called.
        with torch.serialization.safe_globals([argparse.Namespace]):
            content = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except pickle.UnpicklingError as error:
        raise VitscopeError(
            f"the file holds more than tensors, and was refused: {_first_line(error)}",
            where=str(path),
            fix="nothing in it was run; ask for a .safetensors file, or save only its state_dict where it comes from",
        ) from None
    except Exception as error:  # a damaged pickle raises whatever its damage leads to
        raise _unreadable(path, _first_line(error)) from None
    weights, remarks = _found_within(content, path)
    shapes = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    return Stored(shapes, lambda name: weights[name].detach().clone().contiguous(), files=(path,), remarks=remarks)


def _found_within(content: Any, path: Path) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """The tensors of a checkpoint, however deep its trainer put them, and where that was."""
    way: list[str] = []
    passed: list[str] = []
    while isinstance(content, Mapping):
        inner = next((key for key in HELD_WITHIN if isinstance(content.get(key), Mapping)), None)
        if inner is None:
            break
        way.append(inner)
        passed += [key for key in HELD_WITHIN if key != inner and isinstance(content.get(key), Mapping)]
        content = content[inner]
    tensors = {}
    if isinstance(content, Mapping):
        tensors = {name: value for name, value in content.items() if isinstance(value, Tensor)}
    if not tensors or not all(isinstance(name, str) for name in tensors):
        raise VitscopeError(
            "the file holds no weights: no tensors by name were found",
            where=str(path),
            fix=f"give a state_dict, or a checkpoint that holds one as {', '.join(HELD_WITHIN)}",
        )
    instead = f", not its {' or '.join(repr(key) for key in passed)}" if passed else ""
    return tensors, (f"of the checkpoint, its '{'.'.join(way)}'{instead}",) if way else ()


# --- NumPy ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Array:
    """Where an array lies in a .npz file, and what it is."""

    shape: Shape
    dtype: np.dtype[Any]
    fortran: bool
    info: zipfile.ZipInfo
    begin: int | None
    """Where its numbers begin in the file; None where they are compressed."""
    crc: int
    """Checksum of all before them."""


def _read_npz(path: Path) -> Stored:
    try:
        arrays = _npz_arrays(path)
    except (OSError, ValueError, EOFError, struct.error, zipfile.BadZipFile, zlib.error) as error:
        raise _unreadable(path, _first_line(error)) from None

    def read(name: str) -> Tensor:
        try:
            return _as_tensor(_npz_numbers(path, arrays[name]))
        except Exception as error:
            raise _unreadable(path, f"{name}: {_first_line(error)}") from None

    return Stored({name: array.shape for name, array in arrays.items()}, read, files=(path,))


def _npz_arrays(path: Path) -> dict[str, _Array]:
    """From the headers alone; arrays of objects, which are pickles, are refused."""
    arrays: dict[str, _Array] = {}
    with zipfile.ZipFile(path) as archive, path.open("rb") as raw:
        for info in archive.infolist():
            with archive.open(info) as file:
                version = np.lib.format.read_magic(file)
                old = version == (1, 0)
                reader = np.lib.format.read_array_header_1_0 if old else np.lib.format.read_array_header_2_0
                shape, fortran, dtype = reader(file)
                header = file.tell()
            if dtype.hasobject:
                raise ValueError(f"{info.filename} holds objects, which would have to be unpickled")
            begin, crc = None, 0
            if info.compress_type == zipfile.ZIP_STORED and not info.flag_bits & 1:
                raw.seek(info.header_offset + 26)  # two lengths end the entry's own header of 30 bytes
                begin = info.header_offset + 30 + sum(struct.unpack("<HH", raw.read(4)))
                raw.seek(begin)
                begin, crc = begin + header, zlib.crc32(raw.read(header))
            arrays[info.filename.removesuffix(".npy")] = _Array(shape, dtype, fortran, info, begin, crc)
    return arrays


def _npz_numbers(path: Path, array: _Array) -> np.ndarray[Any, Any]:
    if array.begin is None:
        with np.load(path, allow_pickle=False) as arrays:
            return arrays[array.info.filename.removesuffix(".npy")]
    # Straight to its place: NumPy would open the archive again for each, and copy everything twice.
    numbers = np.empty(array.shape[::-1] if array.fortran else array.shape, array.dtype)
    room = numbers.reshape(-1).view(np.uint8)
    with path.open("rb") as file:
        file.seek(array.begin)
        if room.size and file.readinto(room.data) != room.size:
            raise ValueError("the file ends within it")
    if zlib.crc32(room.data, array.crc) != array.info.CRC:
        raise ValueError("its checksum is wrong")
    return numbers.T if array.fortran else numbers


def _as_tensor(array: np.ndarray[Any, Any]) -> Tensor:
    if array.dtype.kind == "V" and array.dtype.itemsize == 2:  # bf16, which NumPy has no word for
        wide = array.view(np.uint16).astype(np.int32) << 16
        return torch.from_numpy(np.ascontiguousarray(wide)).view(torch.float32).bfloat16()
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    return torch.from_numpy(np.ascontiguousarray(native)).reshape(array.shape)


# --- shards -----------------------------------------------------------------------------------------------------


def _read_shards(index: Path) -> Stored:
    try:
        homes = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        names = sorted(set(homes.values()))
        if not all(isinstance(name, str) and Path(name).name == name for name in names):
            raise ValueError("a shard must be a file beside its index")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise _unreadable(index, f"not an index of shards: {_first_line(error)}") from None
    shards = {name: read_file(index.parent / name) for name in names}
    lost = sorted(name for name, home in homes.items() if name not in shards[home])
    if lost:
        raise _unreadable(index, f"{homes[lost[0]]} does not hold {lost[0]}, which the index says it does")
    shapes = {name: shards[home].shapes[name] for name, home in homes.items()}
    files = (index, *(index.parent / name for name in names))
    return Stored(shapes, lambda name: shards[homes[name]][name], files=files)


def _unreadable(path: Path, reason: object) -> VitscopeError:
    return VitscopeError(f"cannot read the weights: {reason}", where=str(path), fix="copy or download the file again")


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [""])[0][:300] or type(error).__name__
