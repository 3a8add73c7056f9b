"""Data sets of the Hugging Face hub, through the package `datasets`: 'owner/name', 'hf:name' or 'hf:name:config'.

`hf:` also opens a folder such as `datasets` writes (Parquet files, or save_to_disk). Rows stay in Arrow files on the
disk; a picture is handed on as the bytes it was stored as. Scripts that come with a data set are never run.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from vitscope.core.errors import DataError, UsageError
from vitscope.core.packages import version_of
from vitscope.core.suggest import did_you_mean
from vitscope.data.config.data import DataConfig
from vitscope.data.decode import bad_image
from vitscope.data.sources.classes import check_parts, number_classes
from vitscope.data.sources.source import Source
from vitscope.data.splits import part_called

if TYPE_CHECKING:
    from datasets import Dataset

PREFIX = "hf:"
HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+(:[\w.-]+)?", re.ASCII)
IMAGE_WORDS = ("image", "img", "picture", "images")
LABEL_WORDS = ("label", "labels", "fine_label", "class", "target", "category", "y")
HIDDEN = -1
"""The hub's label of pictures whose class is kept secret."""


class HubDataset(Source):
    """A data set as `datasets.load_dataset` gives it, split by split."""

    kind = "Hugging Face data set"

    def __init__(
        self, place: str, splits: Mapping[str, Dataset], image: str, label: str, notes: Sequence[str] = ()
    ) -> None:
        from datasets import ClassLabel, Image

        notes = list(notes)
        self._splits: dict[str, Dataset] = {}
        self._image = image
        self._fingerprints = []
        found: list[np.ndarray] = []
        names: Sequence[str] | None = None
        for name, split in splits.items():
            values = _labels(split.select_columns([label])[:][label], f"{place}, split {name}")
            if values is None:
                notes.append(f"split '{name}' has no labels and was left out: {len(split):,} pictures")
                continue
            feature = split.features[label]
            names = feature.names if isinstance(feature, ClassLabel) else names
            found.append(values)
            self._fingerprints.append(f"{name} {split._fingerprint} {image} {label}")
            pictures = split.select_columns([image])
            if isinstance(split.features[image], Image):
                pictures = pictures.cast_column(image, Image(decode=False))
            self._splits[name] = pictures
        if not found:
            raise DataError("no split has labels", where=place, fix="choose another label_column")
        self._ends = np.cumsum([len(values) for values in found])
        labels, class_names, told = number_classes(np.concatenate(found), names)
        starts = np.concatenate([[0], self._ends[:-1]])
        parts = {name: np.arange(*ends) for name, *ends in zip(self._splits, starts, self._ends, strict=True)}
        checked = check_parts(parts, labels, class_names, place)
        super().__init__(place, labels, class_names, checked, [*notes, *told])

    @classmethod
    def looks_like(cls, path: Path | str) -> bool:
        """A name, not a path that is there."""
        name = str(path)
        try:
            return name.startswith(PREFIX) or (HUB_NAME.fullmatch(name) is not None and not Path(name).exists())
        except (OSError, ValueError):
            return False

    @classmethod
    def open(cls, name: str, config: DataConfig) -> Self:
        splits = _load(name)
        known = {part: split for part, split in splits.items() if part_called(part)} or splits
        notes = [f"split '{part}' is not used: {len(splits[part]):,} pictures" for part in splits if part not in known]
        features = next(iter(known.values())).features
        image = _image_column(features, config.image_column, name)
        label = _label_column(features, config.label_column, name)
        return cls(name, known, image, label, notes)

    def read(self, index: int) -> bytes:
        split, row = self._find(index)
        stored: Any = self._splits[split][row][self._image]
        if isinstance(stored, dict):
            path = stored.get("path")
            stored = Path(path).read_bytes() if stored.get("bytes") is None and path else stored.get("bytes")
        if not isinstance(stored, bytes):
            raise ValueError("the row holds no picture")
        return stored

    def where(self, index: int) -> str:
        split, row = self._find(index)
        return f"{self.place}, split {split}, row {row} (counted from 0)"

    def content_hash(self) -> str:
        """Of the fingerprints `datasets` gives: it follows the content of the files it has read."""
        return hashlib.blake2b("\n".join(self._fingerprints).encode(), digest_size=16).hexdigest()

    def _find(self, index: int) -> tuple[str, int]:
        if not 0 <= index < len(self):
            raise IndexError(index)
        number = int(np.searchsorted(self._ends, index, side="right"))
        start = int(self._ends[number - 1]) if number else 0
        return list(self._splits)[number], index - start


def _load(name: str) -> dict[str, Dataset]:
    if version_of("datasets") is None:
        raise UsageError(
            f"'{name}' is looked for on the Hugging Face hub, which needs the package 'datasets'",
            fix="pip install 'vitscope[hub]', or give the path of a folder or file",
        )
    import datasets

    if not sys.stderr.isatty():  # a log wants no animation
        datasets.disable_progress_bars()
    plain = name.removeprefix(PREFIX)
    place, _, variant = (plain, "", "") if Path(plain).is_dir() else plain.partition(":")
    try:
        if any((Path(place) / file).is_file() for file in ("dataset_dict.json", "state.json")):  # save_to_disk
            loaded: Any = datasets.load_from_disk(place)
        else:
            loaded = datasets.load_dataset(place, variant or None)
    except Exception as error:  # network, names, configurations, damaged files: each library below has its own
        variants = re.search(r"\[.*\]", str(error), re.DOTALL) if "config" in str(error).lower() else None
        among = f"; configurations: {' '.join(variants[0].split())[:200]}" if variants else ""
        raise DataError(
            f"the data set '{place}' cannot be loaded: {_reason(error)}{among}",
            where=f"{name}: no such path here; tried datasets.load_dataset({place!r}, {variant or None!r})",
            fix=f"write hf:{place}:CONFIGURATION" if among else "check the name and the network, or give a path",
        ) from None
    return {"train": loaded} if isinstance(loaded, datasets.Dataset) else dict(loaded)


def _reason(error: Exception) -> str:
    """The message itself: an OSError here is about the network, and its number says little."""
    return (str(error).splitlines() or [""])[0][:200] or bad_image(error).what


def _image_column(features: Mapping[str, Any], asked: str | None, place: str) -> str:
    from datasets import Image

    found = [
        name
        for name, kind in features.items()
        if isinstance(kind, Image) or (isinstance(kind, Mapping) and "bytes" in kind)
    ]
    return _chosen(features, asked, found, IMAGE_WORDS, "image", place)


def _label_column(features: Mapping[str, Any], asked: str | None, place: str) -> str:
    from datasets import ClassLabel

    found = [name for name, kind in features.items() if isinstance(kind, ClassLabel)]
    found = found or [name for name in LABEL_WORDS if name in features]
    return _chosen(features, asked, found, LABEL_WORDS, "label", place)


def _chosen(
    features: Mapping[str, Any], asked: str | None, found: Sequence[str], words: Sequence[str], what: str, place: str
) -> str:
    columns = ", ".join(map(repr, features))
    if asked is not None:
        if asked in features:
            return asked
        guess = did_you_mean(asked, features)
        raise DataError(f"no column '{asked}'; the columns are {columns}", where=place, fix=guess)
    best = [word for word in words if word in found] or list(found)
    if not best or (len(best) > 1 and best[0] not in words):
        problem = f"no column of {what}s found" if not best else f"several columns may be the {what}"
        fix = f"name it: {what}_column (`vitscope data ... --{what}-column`)"
        raise DataError(f"{problem}; the columns are {columns}", where=place, fix=fix)
    return best[0]


def _labels(values: Any, where: str) -> np.ndarray | None:
    """Numbers or texts; None where all are hidden."""
    values = list(values)
    hidden = [value is None or value == HIDDEN for value in values]
    if all(hidden):
        return None
    if any(value is None for value in values):
        row = next(number for number, value in enumerate(values) if value is None)
        raise DataError("a picture without a label", where=f"{where}, row {row} (counted from 0)", fix="fill it in")
    found = np.array(values)
    if found.ndim != 1 or found.dtype.kind not in "biuUS":
        raise DataError(
            "labels that are neither whole numbers nor texts", where=where, fix="choose another label_column"
        )
    return found
