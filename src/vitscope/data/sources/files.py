"""Pictures that are a file each."""

from __future__ import annotations

import hashlib
import os
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from vitscope.data.decode import bad_image
from vitscope.data.sources.classes import check_parts
from vitscope.data.sources.source import Source

PICTURE_SUFFIXES = frozenset(
    (
        *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".apng", ".bmp", ".dib", ".gif", ".webp", ".tif", ".tiff"),
        *(".ppm", ".pgm", ".pbm", ".pnm", ".avif", ".jp2", ".j2k", ".ico", ".tga", ".pcx", ".dds", ".mpo"),
    )
)


class PathList(Sequence[str]):
    """Many paths in two flat buffers: a million strings would be copied one by one for every worker."""

    def __init__(self, paths: Iterable[str]) -> None:
        coded = [os.fsencode(path) for path in paths]
        self._text = b"".join(coded)
        self._ends = np.cumsum([0, *map(len, coded)], dtype=np.int64)

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, index: int) -> str:  # type: ignore[override]
        if not 0 <= index < len(self):
            raise IndexError(index)
        return os.fsdecode(self._text[int(self._ends[index]) : int(self._ends[index + 1])])


class PictureFiles(Source):
    """Pictures that are a file each."""

    def __init__(
        self,
        place: str,
        folder: Path,
        paths: Iterable[str],
        labels: Sequence[int] | np.ndarray,
        class_names: Sequence[str],
        parts: Mapping[str, np.ndarray],
        notes: Sequence[str],
    ) -> None:
        """`paths` are relative to `folder`."""
        self._folder = folder
        self._paths = PathList(paths)
        numbers = np.asarray(labels, dtype=np.int64)
        super().__init__(place, numbers, class_names, check_parts(parts, numbers, class_names, place), notes)

    def path(self, index: int) -> Path:
        return self._folder / self._paths[index]

    def read(self, index: int) -> bytes:
        return self.path(index).read_bytes()

    def where(self, index: int) -> str:
        return printable(str(self.path(index)))

    def content_hash(self) -> str:
        digest = hashlib.blake2b(digest_size=16)
        for index, (path, label) in enumerate(zip(self._paths, self.labels, strict=True)):
            digest.update(os.fsencode(path.replace(os.sep, "/")) + f"\0{label}\0".encode() + self._file_hash(index))
        return digest.hexdigest()

    def _file_hash(self, index: int) -> bytes:
        try:
            with self.path(index).open("rb") as file:
                return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=32)).digest()
        except (OSError, ValueError) as error:  # ValueError: a name no file can have
            return hashlib.blake2b(bad_image(error).what.encode(), digest_size=32).digest()


def printable(text: str) -> str:
    """A name as it can be shown and stored: line breaks and bytes that are no text are escaped.

    >>> printable("two\\nlines")
    'two\\\\nlines'
    """
    return "".join(
        letter.encode("unicode_escape").decode() if unicodedata.category(letter) in ("Cc", "Cs") else letter
        for letter in text
    )
