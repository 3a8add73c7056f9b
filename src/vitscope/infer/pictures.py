"""What a caller means by "these pictures": paths, folders, patterns, pictures, arrays or tensors, as one flat list."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL.Image import Image
from torch import Tensor, uint8

from vitscope.core.errors import DataError, InputError, expected
from vitscope.data.decode import Content
from vitscope.data.sources.files import PICTURE_SUFFIXES, printable

Pictures = str | Path | Image | np.ndarray | Tensor | bytes | Iterable[Any]
"""A path, a folder, a pattern such as `photos/*.jpg`, an encoded file's bytes or an open file of them, a picture,
pixels (H, W) or (H, W, C), a tensor, or any number of these. Tensors of uint8, (C, H, W) or (B, C, H, W), are pixels;
tensors of floats have been prepared already, and go to the model as they are."""
WANTED = "a path, a folder, a pattern, bytes, a PIL image, an array, a tensor, or a list of these"


@dataclass(frozen=True)
class Given:
    """One picture, not read yet."""

    name: str | None
    """Its path; None for what came from no file."""
    content: Content | Tensor
    """A tensor only where it has been prepared."""


def find_pictures(pictures: Pictures) -> list[Given]:
    """In the order given; those of a folder or pattern sorted by path. A file that is named and cannot be read is
    listed all the same: what is wrong with it is told in its place."""
    return list(_found(pictures))


def _found(pictures: Any) -> Iterator[Given]:
    match pictures:
        case str() | Path():
            yield from _of_path(pictures)
        case bytes() | bytearray() | memoryview() | Image():
            yield Given(getattr(pictures, "filename", None) or None, pictures)
        case np.ndarray():
            yield from _of_array(pictures)
        case Tensor():
            yield from _of_tensor(pictures)
        case _ if hasattr(pictures, "read"):  # an open file is iterable too, but its lines are no pictures
            yield _of_open_file(pictures)
        case Iterable():
            for one in pictures:
                yield from _found(one)
        case _:
            raise InputError(expected("pictures", WANTED, type(pictures).__name__))


def _of_open_file(file: Any) -> Given:
    content, name = file.read(), getattr(file, "name", None)
    if not isinstance(content, bytes):
        raise InputError(expected("file", "one that is open for bytes", "text"), fix="open it with mode 'rb'")
    return Given(name if isinstance(name, str) else None, content)


def _of_path(path: str | Path) -> Iterator[Given]:
    text = str(path)
    place = Path(path).expanduser()
    if not text:  # to `Path` it is the folder one happens to be in
        raise DataError(expected("pictures", "a path", "an empty text"), fix="name the pictures; '.' is this folder")
    if "://" in text:
        raise DataError(f"'{printable(text)}' is an address", fix="download it first, and give the file")
    if place.is_dir():
        yield from _of_folder(place)
    elif glob.has_magic(text) and not place.exists():
        matching = map(Path, glob.iglob(str(place), recursive=True))  # noqa: PTH207  Path's own wants it in two halves
        paths = sorted(path for path in matching if _is_picture(path))
        if not paths:
            raise DataError(
                f"no picture is called '{printable(text)}'",
                where=f"looked from {printable(str(Path.cwd()))}" if not place.is_absolute() else None,
                fix="check the pattern; put it in quotes",
            )
        yield from (Given(str(path), path) for path in paths)
    else:
        yield Given(text, place)


def _of_folder(folder: Path) -> Iterator[Given]:
    within = (Path(here, name) for here, _, inside in os.walk(folder) for name in inside)
    paths = sorted(path for path in within if _is_picture(path))
    if not paths:
        endings = ", ".join(sorted(PICTURE_SUFFIXES)[:6])
        raise DataError(
            f"there are no pictures in '{printable(str(folder))}'",
            where=f"looked for {endings} ... in it and below",
            fix="give another folder, or the files themselves",
        )
    yield from (Given(str(path), path) for path in paths)


def _is_picture(path: Path) -> bool:
    return path.suffix.lower() in PICTURE_SUFFIXES and not path.name.startswith(".")


def _of_array(array: np.ndarray) -> Iterator[Given]:
    if array.ndim == 4:
        yield from (Given(None, one) for one in array)
    else:
        yield Given(None, array)


def _of_tensor(tensor: Tensor) -> Iterator[Given]:
    if tensor.ndim not in (3, 4) or not (tensor.dtype == uint8 or tensor.is_floating_point()):
        wanted = "(C, H, W) or (B, C, H, W), uint8 for pixels or floats for what is prepared"
        raise InputError(expected("tensor", wanted, f"{tuple(tensor.shape)} of {tensor.dtype}"))
    for one in tensor if tensor.ndim == 4 else tensor[None]:
        yield Given(None, one if one.is_floating_point() else one.permute(1, 2, 0).cpu().numpy())
