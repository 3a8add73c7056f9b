"""Pictures with what is known of them: classes where folders are classes, or a data set's own classes and parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path

from torch import Tensor

from vitscope.core.environment import data_roots
from vitscope.data.sources.builtin import BUILTIN
from vitscope.data.sources.files import printable
from vitscope.data.sources.folder import ImageFolder
from vitscope.data.sources.open import FORMATS, open_source
from vitscope.data.sources.source import Source, Stored
from vitscope.data.splits import PARTS, part_called
from vitscope.infer.pictures import Given, Pictures, find_pictures
from vitscope.infer.stream import Prepare

DATA_SUFFIXES = (".parquet", ".npz", ".csv")
"""Files that hold many pictures."""


@dataclass(frozen=True)
class InSet(Given):
    """A picture of a data set, read when its turn comes."""

    read: Callable[[], Stored] = bytes


@dataclass(frozen=True)
class Found:
    """Pictures in order, not read yet."""

    given: Sequence[Given]
    labels: Sequence[int] | None = None
    """Of each its class, from 0; None where nothing says it."""
    classes: tuple[str, ...] = ()
    parts: Sequence[str] | None = None
    """Of each its part, in a data set that is split."""

    def path(self, place: int) -> str | None:
        """As it can be written to a file."""
        name = self.given[place].name
        return None if name is None else printable(name)


def find_labelled(pictures: Pictures) -> Found:
    """What `find_pictures` finds, with classes where one folder was given whose folders are classes (below `train`,
    `val` and `test`, or not). A name or path that is no folder of pictures may be a data set, as `open_dataset` knows
    them: `digits`, Parquet files, ..."""
    if not isinstance(pictures, str | Path):
        return Found(find_pictures(pictures))
    if _is_data_set(pictures):
        return in_set(open_source(str(pictures)))
    given = find_pictures(pictures)
    root = Path(pictures).expanduser()
    return _by_folder(given, root) if root.is_dir() else Found(given)


def in_set(source: Source, indices: Sequence[int] | None = None, parts: Sequence[str] | None = None) -> Found:
    """Pictures of a data set, all by default."""
    source.prepare_random_access()
    numbers = range(len(source)) if indices is None else [int(index) for index in indices]
    if parts is None and source.parts:
        named = {int(index): name for name, members in source.parts.items() for index in members}
        numbers = [index for index in numbers if index in named]  # what is in no part has no class either
        parts = [part_called(named[index]) or named[index] for index in numbers]

    def given(index: int) -> InSet:
        return InSet(source.where(index), b"", lambda: source.read(index))

    labels = [int(source.labels[index]) for index in numbers]
    return Found([given(index) for index in numbers], labels, source.class_names, parts)


def reading_sets(prepare: Prepare) -> Prepare:
    """`prepare`, for pictures of data sets too."""

    def prepared(given: Given) -> Tensor:
        return prepare(opened(given))

    return prepared


def opened(given: Given) -> Given:
    """A picture of a data set with its content; others as they are."""
    return Given(given.name, given.read()) if isinstance(given, InSet) else given


def _is_data_set(pictures: str | Path) -> bool:
    path, text = Path(pictures).expanduser(), str(pictures)
    if path.is_file():
        return path.suffix.lower() in DATA_SUFFIXES
    if path.is_dir():  # what holds pictures is a folder of pictures, whatever else lies in it
        return not ImageFolder.looks_like(path) and any(_kind(*kind).looks_like(path) for kind in FORMATS)
    known = text.partition(":")[0] in BUILTIN or text.startswith("hf:")
    return known or any((root / text).exists() for root in data_roots())


def _kind(module: str, name: str) -> type[ImageFolder]:
    return getattr(import_module(f"vitscope.data.sources.{module}"), name)


def _by_folder(given: Sequence[Given], root: Path) -> Found:
    """The folder a picture lies in, below `root`, is its class, unless some lie in none."""
    below = [Path(one.name or "").relative_to(root).parts[:-1] for one in given]
    if not all(below):
        return Found(given)
    parts = None
    if all(len(folders) > 1 and part_called(folders[0]) in PARTS for folders in below):
        parts = [part_called(folders[0]) or "" for folders in below]
        below = [folders[1:] for folders in below]
    classes = sorted({folders[0] for folders in below})
    number_of = {name: number for number, name in enumerate(classes)}
    labels = [number_of[folders[0]] for folders in below]
    return replace(Found(given, labels, tuple(map(printable, classes))), parts=parts)
