"""Tensors in files: safetensors, torch's own, NumPy's .npz, whole or in shards. Nothing is ever run that a file holds.

What a file is, its content says, not its name. A tensor is read when it is asked for and belongs to whoever asked:
reading a model takes the memory of the model, not twice that.
"""

from __future__ import annotations

import argparse
import pickle
import re
import tarfile
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from vitscope.core.errors import VitscopeError
from vitscope.weights.bounds import (
    Shape,
    beginning_of,
    cut_off,
    read_small_json,
    refuse_inflation,
    refuse_names,
    refuse_odd_tensors,
    refuse_shape,
    safetensors_header,
)
from vitscope.weights.bounds import first_line as _first_line
from vitscope.weights.bounds import unreadable as _unreadable
from vitscope.weights.npz_file import npz_places, read_array

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
DEEPEST = 8
ZIP = (b"PK\x03\x04", b"PK\x05\x06")
"""How an archive begins, and one that holds nothing."""


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
    beginning = beginning_of(path)
    if beginning[:4] in ZIP:
        stored = _read_npz(path) if _is_npz(path) else _read_torch(path, mapped=True)
    elif beginning[8:9] == b"{" or path.suffix == ".safetensors":
        stored = _read_safetensors(path)
    else:
        stored = _read_torch(path, mapped=False)
    if not stored:
        raise _unreadable(path, "it holds no tensors", fix="give a file that holds a model's weights")
    return stored


# --- safetensors ------------------------------------------------------------------------------------------------


def _read_safetensors(path: Path) -> Stored:
    try:
        with safe_open(path, framework="pt"):  # checks the header: its size, the offsets, no gap and no overlap
            pass
        header, begin = safetensors_header(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise _unreadable(path, cut_off(path) or _first_line(error)) from None
    refuse_names(path, header)
    for name, entry in header.items():
        refuse_shape(path, name, entry["shape"])
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
                if file.readinto(room.data) != last - first:  # it was longer when its header was checked
                    raise _unreadable(path, f"it ends within {name}")
        return tensor

    return Stored({name: tuple(entry["shape"]) for name, entry in header.items()}, read, files=(path,))


# --- torch ------------------------------------------------------------------------------------------------------


def _read_torch(path: Path, *, mapped: bool) -> Stored:
    if not mapped and tarfile.is_tarfile(path):  # torch would unpack it into a folder
        raise _unreadable(path, "a tar archive", fix="unpack it, and give the weights file in it")
    if mapped:
        _refuse_bombs(path)
    try:
        # A namespace of arguments lies in most trainers' checkpoints. It is made, not called.
        with warnings.catch_warnings(), torch.serialization.safe_globals([argparse.Namespace]):
            warnings.simplefilter("ignore")  # of what is refused below, torch only warns
            content = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except pickle.UnpicklingError as error:
        raise VitscopeError(
            f"the file holds more than tensors, and was refused: {_what_else(error)}",
            where=str(path),
            fix="nothing in it was run; ask for a .safetensors file, or save only its state_dict where it comes from",
        ) from None
    except Exception as error:  # a damaged pickle raises whatever its damage leads to
        raise _unreadable(path, _first_line(error)) from None
    weights, remarks = _found_within(content, path)
    refuse_odd_tensors(path, weights)
    shapes = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    return Stored(shapes, lambda name: weights[name].detach().clone().contiguous(), files=(path,), remarks=remarks)


def _refuse_bombs(path: Path) -> None:
    try:
        with zipfile.ZipFile(path) as archive:
            refuse_inflation(path, archive)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise _unreadable(path, _first_line(error)) from None


def _what_else(error: pickle.UnpicklingError) -> str:
    """What torch refused, without its advice on how to let it run all the same."""
    text = str(error)
    found = re.search(r"GLOBAL (\S+)", text) or re.search(r"WeightsUnpickler error:\s*(.+)", text)
    told = "it cannot be read as tensors alone" if found is None else found[1]
    return "".join(letter for letter in told if letter.isprintable())[:200]


def _found_within(content: Any, path: Path) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """The tensors of a checkpoint, however deep its trainer put them, and where that was."""
    way: list[str] = []
    passed: list[str] = []
    while isinstance(content, Mapping) and len(way) < DEEPEST:  # a checkpoint may hold itself
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


def _is_npz(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return any(name.endswith(".npy") for name in archive.namelist())
    except zipfile.BadZipFile as error:
        endless = "cut off: it begins as an archive, and has no archive's end"
        raise _unreadable(path, endless if "not a zip file" in str(error) else _first_line(error)) from None
    except (OSError, ValueError, NotImplementedError) as error:
        raise _unreadable(path, _first_line(error)) from None


def _read_npz(path: Path) -> Stored:
    places = npz_places(path)
    shapes = {name: place.shape for name, place in places.items()}
    return Stored(shapes, lambda name: read_array(path, name, places[name]), files=(path,))


# --- shards -----------------------------------------------------------------------------------------------------


def _read_shards(index: Path) -> Stored:
    try:
        homes = read_small_json(index)["weight_map"]
        names = sorted(set(homes.values()))
        if not names:
            raise ValueError("it names no tensors")
        for name in names:
            refuse_names(index, [name])
            if Path(name).name != name or name in (".", ".."):
                raise ValueError(f"a shard must be a file beside its index, not {name!r}")
            if name.endswith(".index.json"):  # it might name itself
                raise ValueError("a shard cannot be an index")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise _unreadable(index, f"not an index of shards: {_first_line(error)}") from None
    refuse_names(index, homes)
    shards = {name: read_file(index.parent / name) for name in names}
    lost = sorted(name for name, home in homes.items() if name not in shards[home])
    if lost:
        raise _unreadable(index, f"{homes[lost[0]]} does not hold {lost[0]}, which the index says it does")
    shapes = {name: shards[home].shapes[name] for name, home in homes.items()}
    files = (index, *(index.parent / name for name in names))
    return Stored(shapes, lambda name: shards[homes[name]][name], files=files)
