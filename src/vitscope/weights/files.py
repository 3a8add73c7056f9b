"""Tensors in files: safetensors, torch's own, NumPy's .npz, whole or in shards. Nothing is ever run that a file holds.

What a file is, its content says, not its name. A file is opened once. A tensor is read when it is asked for and belongs
to whoever asked: reading a model takes the memory of the model, not twice that.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from torch import Tensor

from vitscope.weights.bounds import (
    MOST_HEADER_BYTES,
    MOST_SHARDS,
    Shape,
    beginning_of,
    first_line,
    open_file,
    refuse_many,
    refuse_names,
    small_json,
    unreadable,
)
from vitscope.weights.npz_file import npz_places, read_array
from vitscope.weights.opened import OpenFile
from vitscope.weights.safetensors_file import read_safetensors
from vitscope.weights.torch_file import read_torch

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
        opened: tuple[OpenFile, ...] = (),
        remarks: tuple[str, ...] = (),
    ) -> None:
        self.shapes = dict(shapes)
        self.files = files
        self.opened = opened
        """The same files, as they are read from."""
        self.remarks = remarks
        """What a person should know of how they lay there."""
        self._read = read

    @staticmethod
    def of(
        opened: tuple[OpenFile, ...],
        shapes: Mapping[str, Shape],
        read: Callable[[str], Tensor],
        remarks: tuple[str, ...] = (),
    ) -> Stored:
        files = tuple(one.path for one in opened)
        return Stored(shapes, read, files=files, opened=opened, remarks=remarks)

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
        return Stored(
            shapes,
            lambda name: self[old_names[name]],
            files=self.files,
            opened=self.opened,
            remarks=self.remarks,
        )

    def sha256(self) -> dict[str, str]:
        """Of each file by its name, once the tensors are read: of the very files they came from."""
        return {opened.path.name: opened.sha256() for opened in self.opened}

    def is_in_place(self) -> bool:
        """Whether who opens the files now gets these very ones."""
        return all(opened.is_in_place() for opened in self.opened)

    def close(self) -> None:
        """No tensor can be read any more."""
        for opened in self.opened:
            opened.close()


def read_file(path: str | Path) -> Stored:
    """The tensors of a weights file, or of all shards its index names."""
    path = Path(path)
    opened = open_file(path)
    if path.name.endswith(".index.json"):
        return _read_shards(opened)
    beginning = beginning_of(opened)
    if beginning[:4] in ZIP:
        stored = _read_npz(opened) if _is_npz(opened) else Stored.of((opened,), *read_torch(opened, zipped=True))
    elif beginning[8:9] == b"{" or path.suffix == ".safetensors":
        stored = Stored.of((opened,), *read_safetensors(opened))
    else:
        stored = Stored.of((opened,), *read_torch(opened, zipped=False))
    if not stored:
        raise unreadable(path, "it holds no tensors", fix="give a file that holds a model's weights")
    return stored


def _is_npz(opened: OpenFile) -> bool:
    try:
        with zipfile.ZipFile(opened.file) as archive:
            return any(name.endswith(".npy") for name in archive.namelist())
    except zipfile.BadZipFile as error:
        endless = "cut off: it begins as an archive, and has no archive's end"
        raise unreadable(opened.path, endless if "not a zip file" in str(error) else first_line(error)) from None
    except (OSError, ValueError, NotImplementedError) as error:
        raise unreadable(opened.path, first_line(error)) from None


def _read_npz(opened: OpenFile) -> Stored:
    places = npz_places(opened)
    shapes = {name: place.shape for name, place in places.items()}
    return Stored.of((opened,), shapes, lambda name: read_array(opened, name, places[name]))


# --- shards -----------------------------------------------------------------------------------------------------


def _read_shards(index: OpenFile) -> Stored:
    folder = index.path.parent
    try:
        homes = small_json(index.read_at(0, MOST_HEADER_BYTES + 1))["weight_map"]
        names = sorted(set(homes.values()))
        if not names:
            raise ValueError("it names no tensors")
        if len(names) > MOST_SHARDS:
            raise ValueError(f"it names {len(names):,} files, and {MOST_SHARDS} are the most that are read")
        for name in names:
            refuse_names(index.path, [name])
            if Path(name).name != name or name in (".", ".."):
                raise ValueError(f"a shard must be a file beside its index, not {name!r}")
            if name.endswith(".index.json"):  # it might name itself
                raise ValueError("a shard cannot be an index")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise unreadable(index.path, f"not an index of shards: {first_line(error)}") from None
    refuse_many(index.path, len(homes))
    refuse_names(index.path, homes)
    shards = {name: read_file(folder / name) for name in names}
    lost = sorted(name for name, home in homes.items() if name not in shards[home])
    if lost:
        raise unreadable(index.path, f"{homes[lost[0]]} does not hold {lost[0]}, which the index says it does")
    shapes = {name: shards[home].shapes[name] for name, home in homes.items()}
    opened = (index, *(one for shard in shards.values() for one in shard.opened))
    return Stored.of(opened, shapes, lambda name: shards[homes[name]][name])
