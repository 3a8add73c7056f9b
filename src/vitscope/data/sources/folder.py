"""A folder of pictures, sorted into folders by class, as torchvision's ImageFolder reads it.

`train/cat/1.jpg, val/cat/2.jpg, ...` (parts, then classes) or `cat/1.jpg, dog/2.jpg, ...` (classes; one pool). Pictures
lie anywhere below their class's folder. Nothing is opened but what is read; nothing is ever written.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Self

import numpy as np

from vitscope.core.errors import DataError
from vitscope.data.config.data import DataConfig
from vitscope.data.decode import bad_image
from vitscope.data.sources.files import PICTURE_SUFFIXES, PictureFiles, printable
from vitscope.data.splits import PARTS, part_called

LAYOUT = "train/<class>/*.jpg and val/<class>/*.jpg (test/ too), or <class>/*.jpg"
LOOKED_AT = 1000
"""Entries `looks_like` looks at before it says no."""


class ImageFolder(PictureFiles):
    """One folder per class, perhaps below one folder per part."""

    kind = "image folder"

    @classmethod
    def looks_like(cls, path: Path) -> bool:
        """A folder in which a picture soon turns up."""
        waiting, left = [path], LOOKED_AT
        while waiting and left > 0:
            try:
                with os.scandir(waiting.pop()) as entries:
                    for entry in entries:
                        left -= 1
                        if _kind(entry) == "picture":
                            return True
                        if _kind(entry) == "folder":
                            waiting.append(Path(entry.path))
                        if left <= 0:
                            break
            except (OSError, ValueError):
                continue
        return False

    @classmethod
    def open(cls, path: Path, config: DataConfig) -> Self:
        del config
        walk = _Walk(Path(path))
        layout = _layout(walk)
        names = sorted({name for folders in layout.values() for name in folders})
        number_of = {name: number for number, name in enumerate(names)}
        paths: list[str] = []
        labels: list[int] = []
        parts: dict[str, np.ndarray] = {}
        for part, folders in layout.items():
            start = len(paths)
            for name in folders:
                found = walk.pictures(name if part is None else f"{part}/{name}")
                paths += found
                labels += [number_of[name]] * len(found)
            if part is not None:
                parts[part] = np.arange(start, len(paths))
        shown = [printable(name) for name in names]
        empty = [shown[number] for number in sorted(set(range(len(names))) - set(labels))]
        notes = walk.notes()
        notes += [f"class {name!r} has no pictures" for name in empty[:10]]
        notes += [f"{len(empty) - 10} more classes have no pictures"] if len(empty) > 10 else []
        if len(names) == 1 and any("/" in found.removeprefix(f"{names[0]}/") for found in paths[:LOOKED_AT]):
            notes.append(f"one class only, {shown[0]!r}: if the folders in it are the classes, open that folder itself")
        return cls(str(path), Path(path), paths, labels, shown, parts, notes)


def _layout(walk: _Walk) -> dict[str | None, list[str]]:
    """Part (None: one pool) -> its classes' folders."""
    folders, pictures = walk.look("")
    if not folders:
        raise DataError(
            f"{len(pictures):,} pictures, but no folders that say their class" if pictures else "no pictures found",
            where=printable(str(walk.root)),
            fix=_whole_set(walk.root) or f"sort the pictures into one folder per class: {LAYOUT}",
        )
    named = sorted(
        (name for name in folders if part_called(name)), key=lambda name: PARTS.index(part_called(name) or "")
    )
    parts: dict[str | None, list[str]] = {name: walk.look(name)[0] for name in named if walk.look(name)[0]}
    if parts and (len(parts) > 1 or len(named) == len(folders)):
        walk.left_out += [f"{name}/" for name in folders if name not in parts]
        for name in ("", *named):
            walk.without_class(name)
        return parts
    if parts or len(named) == len(folders):  # `train` may be a part or, beside `bus` and `tram`, a class
        words = ", ".join(repr(printable(name)) for name in folders[:6])
        raise DataError(
            f"the folders {words} are " + ("neither all parts nor all classes" if parts else "parts without classes"),
            where=printable(str(walk.root)),
            fix=f"sort the pictures into {LAYOUT}",
        )
    walk.without_class("")
    return {None: folders}


def _whole_set(root: Path) -> str | None:
    """Of a single class's folder: the folder it lies in, where others with pictures lie beside it."""
    try:
        above = root.parent if root.name not in ("", "..") else root.resolve().parent
        if part_called(above.resolve().name):
            above = above.parent
        beside = (entry for entry in islice(above.iterdir(), LOOKED_AT) if entry.is_dir() and entry.name[0] != ".")
        others = [entry for entry in beside if not entry.samefile(root)]
    except OSError:
        return None
    if not any(ImageFolder.looks_like(entry) for entry in others[:10]):
        return None
    return f"did you mean '{printable(str(above))}', where each class has a folder?"


class _Walk:
    """Finds pictures below a folder, and remembers what it passed by. Paths are relative, with `/`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.left_out: list[str] = []
        self._no_pictures: list[str] = []
        self._unreadable: list[str] = []
        self._loops: list[str] = []
        self._stray: list[str] = []
        self._looked: dict[str, tuple[list[str], list[str]]] = {}
        try:
            self._above = {_identity(root)}
            os.scandir(root).close()
        except (OSError, ValueError) as error:
            raise DataError(
                f"the folder cannot be read: {bad_image(error).what}",
                where=printable(str(root)),
                fix="give a folder of pictures",
            ) from None

    def look(self, folder: str) -> tuple[list[str], list[str]]:
        """Names of the folders and of the pictures in one folder, sorted."""
        if folder not in self._looked:
            found: dict[str, list[str]] = {"folder": [], "picture": [], "other": [], "hidden": []}
            try:
                with os.scandir(self.root / folder) as entries:
                    for entry in entries:
                        found[_kind(entry)].append(entry.name)
            except OSError as error:
                self._unreadable.append(f"{folder} ({bad_image(error).what})")
            self._no_pictures += [_joined(folder, name) for name in sorted(found["other"])]
            folders = [name for name in sorted(found["folder"]) if not self._is_loop(_joined(folder, name))]
            self._looked[folder] = folders, sorted(found["picture"])
        return self._looked[folder]

    def pictures(self, folder: str) -> list[str]:
        """All pictures below a class's folder, in torchvision's order: by folder, then by name."""
        found: list[tuple[str, str]] = []
        above = {_identity(self.root / parent) for parent in Path(folder).parents if parent.parts}
        waiting, seen = [folder], self._above | above
        while waiting:
            here = waiting.pop()
            try:
                identity = _identity(self.root / here)
            except OSError as error:
                self._unreadable.append(f"{here} ({bad_image(error).what})")
                continue
            if identity in seen:  # a link to what was read already, perhaps to a folder above
                self._loops.append(here)
                continue
            seen.add(identity)
            folders, pictures = self.look(here)
            del self._looked[here]  # a second list of all names is not needed
            found += [(here, name) for name in pictures]
            waiting += [_joined(here, name) for name in reversed(folders)]
        return [_joined(*pair) for pair in sorted(found)]

    def without_class(self, folder: str) -> None:
        self._stray += [_joined(folder, name) for name in self.look(folder)[1]]

    def notes(self) -> list[str]:
        passed = (
            ("folder beside the parts was left out", "folders beside the parts were left out", self.left_out),
            ("picture in no class's folder was left out", "pictures in no class's folder were left out", self._stray),
            ("file that is no picture was ignored", "files that are no pictures were ignored", self._no_pictures),
            ("folder cannot be read", "folders cannot be read", self._unreadable),
            ("link leads back and was not followed", "links lead back and were not followed", self._loops),
        )
        return [_note(one, many, found) for one, many, found in passed if found]

    def _is_loop(self, folder: str) -> bool:
        try:
            loop = _identity(self.root / folder) in self._above
        except OSError:  # said when it is to be read
            return False
        if loop:
            self._loops.append(folder)
        return loop


def _note(one: str, many: str, found: Sequence[str]) -> str:
    """'3 files that are no pictures were ignored, e.g. a/b.txt'"""
    shown = printable(found[0])
    return f"1 {one}: {shown}" if len(found) == 1 else f"{len(found):,} {many}, e.g. {shown}"


def _kind(entry: os.DirEntry[str]) -> str:
    """folder, picture, other or hidden. A broken link with a picture's name is a picture: reading it says why not."""
    if entry.name.startswith(".") or entry.name == "__MACOSX":
        return "hidden"
    looks = "picture" if os.path.splitext(entry.name)[1].lower() in PICTURE_SUFFIXES else "other"  # noqa: PTH122
    try:
        if entry.is_dir():
            return "folder"
        if entry.is_file():
            return looks
        entry.stat()  # there, but neither: a pipe or a device would hang whoever reads it
    except OSError:
        return looks
    return "other"


def _identity(folder: Path) -> tuple[int, int]:
    found = folder.stat()
    return found.st_dev, found.st_ino


def _joined(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name
