"""Parquet files in Hugging Face's layout: a column of pictures {bytes, path}, a column of labels, names in the schema.

Files are never loaded whole: labels are read as one column; pictures are streamed a row group at a time. A row group
holds hundreds of pictures, so to read single ones in random order they are first copied, once, into one plain file in
the cache (`spool`), which all worker processes map.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from vitscope.core.errors import DataError, expected
from vitscope.core.suggest import did_you_mean
from vitscope.data.cache import hash_of_files
from vitscope.data.config import DataConfig
from vitscope.data.sources.classes import check_parts, number_classes
from vitscope.data.sources.source import Source, Stored
from vitscope.data.sources.spool import Spool
from vitscope.data.sources.stirred import STRETCH_BYTES, Stream, stirred
from vitscope.data.splits import part_called

STREAMED_ROWS = 256
"""Pictures in memory at a time."""
LABEL_WORDS = ("label", "labels", "class", "target", "category", "fine_label")


@dataclass(frozen=True)
class _Group:
    """One row group: which file, which group in it, which pictures."""

    file: int
    group: int
    first: int
    rows: int
    size_bytes: int


@dataclass(frozen=True)
class _Stretch:
    """Rows of a row group, in memory, and which of them were asked for."""

    group: _Group
    numbers: list[int]
    rows: list[int]
    cells: pa.Array

    @property
    def size_bytes(self) -> int:
        return self.cells.nbytes

    def __len__(self) -> int:
        return len(self.numbers)

    @cached_property
    def _bytes(self) -> pa.Array:
        kind = self.cells.type
        has_bytes = pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0
        return self.cells.field("bytes") if has_bytes else self.cells

    def cell(self, place: int) -> Any:
        """Its bytes; all that is in it, where it has none. A dictionary made of it takes as long as the rest."""
        row = self.rows[place]
        content = self._bytes[row].as_py()
        return self.cells[row].as_py() if content is None else content


class ParquetFiles(Source):
    kind = "Parquet files"

    def __init__(self, place: str, files: Sequence[Path], config: DataConfig) -> None:
        self.files = list(files)
        schemas = [_opened(path).schema_arrow for path in self.files]
        self.image_column, label_column, names = _columns(schemas[0], self.files[0], config)
        for path, schema in zip(self.files, schemas, strict=True):
            _refuse_other_schema(path, schema, self.image_column, label_column)
        raw = [_opened(path).read(columns=[label_column]).column(0) for path in self.files]
        for path, column in zip(self.files, raw, strict=True):
            _refuse_missing(path, label_column, column)
        labels, class_names, notes = _numbered(np.concatenate([_as_array(column) for column in raw]), names)
        self._groups, self._bounds = _groups(self.files)
        self._firsts = np.array([group.first for group in self._groups], dtype=np.int64)
        parts, left_out = _parts(self.files, self._bounds, labels)
        if parts:  # what is in no part keeps its number, but its label says nothing
            labels[np.setdiff1d(np.arange(len(labels)), np.concatenate(list(parts.values())))] = 0
        self._spool: Spool | None = None
        parts = check_parts(parts, labels, class_names, place)
        super().__init__(place, labels, class_names, parts, [*notes, *left_out])

    @classmethod
    def looks_like(cls, path: Path) -> bool:
        return bool(parquet_files(path))

    @classmethod
    def open(cls, path: Path, config: DataConfig) -> ParquetFiles:
        return cls(str(path), parquet_files(path), config)

    def read(self, index: int) -> Stored:
        if self._spool is not None:
            return self._spool.read(index)
        group = self._group_of(index)
        column = _opened(self.files[group.file]).read_row_group(group.group, columns=[self.image_column]).column(0)
        return self._stored(column[index - group.first].as_py(), group)

    def scan(self, indices: Sequence[int] | np.ndarray) -> Iterator[tuple[int, Stored | Exception]]:
        """In the order of the files, whatever was asked for."""
        for group, numbers in self._by_group(indices):
            for stretch in self._stretches(group, numbers, STREAMED_ROWS):
                for place in range(len(stretch)):
                    yield stretch.numbers[place], self._stored_or_error(stretch.cell(place), group)

    def scan_by_lot(
        self, indices: Sequence[int] | np.ndarray, rng: np.random.Generator
    ) -> Iterator[tuple[int, Stored | Exception]]:
        if self._spool is not None:
            yield from super().scan_by_lot(indices, rng)
            return
        streams = []
        for group, numbers in self._by_group(indices):
            rows = min(STREAMED_ROWS, max(1, STRETCH_BYTES * group.rows // max(1, group.size_bytes)))
            count = len(np.unique((numbers - group.first) // rows))
            streams.append(Stream(count, self._stretches(group, numbers, rows)))
        for stretch, place in stirred(streams, rng):
            yield stretch.numbers[place], self._stored_or_error(stretch.cell(place), stretch.group)

    def _by_group(self, indices: Sequence[int] | np.ndarray) -> Iterator[tuple[_Group, np.ndarray]]:
        """The row groups with pictures that are asked for, and those pictures' numbers, rising."""
        wanted = np.unique(np.asarray(indices, dtype=np.int64))
        ends = np.searchsorted(wanted, [*self._firsts, len(self)])
        for group, start, stop in zip(self._groups, ends[:-1], ends[1:], strict=True):
            if start < stop:
                yield group, wanted[start:stop]

    def _stretches(self, group: _Group, numbers: np.ndarray, rows: int) -> Iterator[_Stretch]:
        """Of these pictures, out of so many rows at a time; where none is asked for there is no stretch."""
        batches = _opened(self.files[group.file]).iter_batches(
            batch_size=rows, row_groups=[group.group], columns=[self.image_column]
        )
        first = group.first
        for batch in batches:
            asked = numbers[(numbers >= first) & (numbers < first + len(batch))]
            if len(asked):
                yield _Stretch(group, asked.tolist(), (asked - first).tolist(), batch.column(0))
            first += len(batch)
            if first > numbers[-1]:
                break

    def prepare_random_access(self, *, keep: bool = True) -> None:
        if self._spool is None:
            everything = self.scan(np.arange(len(self)))
            content_hash = self.content_hash() if keep else ""
            self._spool = Spool.make(content_hash, everything, len(self), keep=keep)

    def where(self, index: int) -> str:
        group = self._group_of(index)
        return f"{self.files[group.file]}, row {index - self._bounds[group.file][0]}"

    def content_hash(self) -> str:
        """Of the files, and of the pictures they only name."""
        named = hashlib.blake2b(self.image_column.encode(), digest_size=16)
        for group in self._groups:
            if _may_lack_bytes(_opened(self.files[group.file]), group.group, self.image_column):
                for _, stored in self.scan(np.arange(group.first, group.first + group.rows)):
                    named.update(str(stored).encode() if isinstance(stored, Exception) else bytes(stored))
        return hash_of_files(self.files, salt=named.hexdigest())

    def _group_of(self, index: int) -> _Group:
        return self._groups[int(np.searchsorted(self._firsts, index, side="right")) - 1]

    def _stored(self, value: Any, group: _Group) -> bytes:
        """The bytes of one cell; some files only name the picture's path."""
        content = value.get("bytes") if isinstance(value, dict) else value
        if isinstance(content, bytes):
            return content
        path = value.get("path") if isinstance(value, dict) else None
        if path:
            return (self.files[group.file].parent / path).read_bytes()
        raise ValueError("the cell is empty")

    def _stored_or_error(self, value: Any, group: _Group) -> Stored | Exception:
        try:
            return self._stored(value, group)
        except Exception as error:
            return error


def parquet_files(path: Path) -> list[Path]:
    """The file itself; or a folder's files, or those of its folder `data`, or those one level down."""
    try:
        if path.is_file():
            return [path] if path.suffix.lower() == ".parquet" else []
        for pattern in ("*.parquet", "data/*.parquet", "*/*.parquet"):
            found = sorted(file for file in path.glob(pattern) if file.is_file() and not file.name.startswith("."))
            if found:
                return found
    except OSError:
        pass
    return []


def _opened(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path, memory_map=True)
    except (OSError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0]
        raise DataError(
            f"cannot be read as Parquet: {reason}", where=str(path), fix="download the file again"
        ) from None


def _features(schema: pa.Schema) -> dict[str, Any]:
    """Hugging Face's description of the columns, where the file has one that can be read."""
    try:
        return json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
    except (KeyError, TypeError, ValueError):
        return {}


def _columns(schema: pa.Schema, path: Path, config: DataConfig) -> tuple[str, str, list[str] | None]:
    """Names of the picture and label columns, and the class names if the file tells them."""
    features = _features(schema)
    kinds = {name: feature.get("_type") for name, feature in features.items() if isinstance(feature, dict)}
    images = [name for name in schema.names if kinds.get(name) == "Image" or _holds_bytes(schema.field(name).type)]
    labels = [name for name in schema.names if kinds.get(name) == "ClassLabel"]
    labels = labels or [word for word in LABEL_WORDS if word in schema.names]
    image = _chosen(config.image_column, images, schema, path, "image")
    label = _chosen(config.label_column, labels, schema, path, "label")
    kind = schema.field(label).type
    if _holds_bytes(kind) or pa.types.is_nested(kind):
        raise DataError(
            expected(f"column '{label}'", "labels: whole numbers or text", str(kind)[:60]),
            where=str(path),
            fix=f"choose another label_column; the file has: {', '.join(schema.names)}",
        )
    names = features.get(label, {}).get("names") if isinstance(features.get(label), dict) else None
    return image, label, names if isinstance(names, list) else None


def _chosen(asked: str | None, found: list[str], schema: pa.Schema, path: Path, what: str) -> str:
    columns = ", ".join(schema.names)
    if asked is not None:
        if asked not in schema.names:
            raise DataError(
                f"no column '{asked}'",
                where=str(path),
                fix=did_you_mean(asked, schema.names) or f"the file has: {columns}",
            )
        return asked
    if not found:
        raise DataError(
            f"no column of {what}s can be told",
            where=str(path),
            fix=f"name it ({what}_column, `vitscope data ... --{what}-column`); the file has: {columns}",
        )
    return found[0]


def _may_lack_bytes(file: pq.ParquetFile, group: int, column: str) -> bool:
    """Whether some cells of a row group only name a picture's path, as far as the file's statistics tell."""
    described = file.metadata.row_group(group)
    for number in range(described.num_columns):
        leaf = described.column(number)
        if leaf.path_in_schema in (column, f"{column}.bytes"):
            told = leaf.statistics
            return told is None or not told.has_null_count or told.null_count > 0
    return True


def _holds_bytes(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(field.name == "bytes" for field in kind)
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind)


def _refuse_other_schema(path: Path, schema: pa.Schema, *columns: str) -> None:
    for column in columns:
        if column not in schema.names:
            raise DataError(
                f"no column '{column}', which the other files have", where=str(path), fix="keep one layout per folder"
            )


def _refuse_missing(path: Path, column: str, values: pa.ChunkedArray) -> None:
    if values.null_count:
        row = next(row for row, value in enumerate(values) if not value.is_valid)
        raise DataError(
            f"{values.null_count:,} rows have no label", where=f"{path}, column {column}, first in row {row}",
            fix="give them labels, or take the rows out",
        )  # fmt: skip


def _as_array(column: pa.ChunkedArray) -> np.ndarray:
    """Of whole numbers without pyarrow's `to_numpy`, which imports pandas where there is one."""
    if not pa.types.is_integer(column.type) or column.null_count or not len(column):
        return column.to_numpy()
    return np.concatenate([np.from_dlpack(chunk) for chunk in column.chunks if len(chunk)])


def _numbered(values: np.ndarray, names: list[str] | None) -> tuple[np.ndarray, tuple[str, ...], list[str]]:
    """Labels as numbers from 0, and the classes' names; text that is none of the names stands out as -2."""
    if values.dtype.kind == "f" and (values == np.round(values)).all():  # whole numbers, as a data frame writes them
        values = values.astype(np.int64)
    if values.dtype.kind in "iub":
        return number_classes(values.astype(np.int64), names)
    if names is None:
        return number_classes([str(value) for value in values])
    numbers = {name: number for number, name in enumerate(names)}
    return np.array([numbers.get(str(value), -2) for value in values], dtype=np.int64), tuple(names), []


def _groups(files: Sequence[Path]) -> tuple[list[_Group], list[tuple[int, int]]]:
    """All row groups, and of each file the first picture and one past the last."""
    groups, bounds, first = [], [], 0
    for place, path in enumerate(files):
        metadata = _opened(path).metadata
        start = first
        for group in range(metadata.num_row_groups):
            described = metadata.row_group(group)
            groups.append(_Group(place, group, first, described.num_rows, described.total_byte_size))
            first += described.num_rows
        bounds.append((start, first))
    return groups, bounds


def _parts(
    files: Sequence[Path], bounds: Sequence[tuple[int, int]], labels: np.ndarray
) -> tuple[dict[str, np.ndarray], list[str]]:
    """Parts by the names of files ('train-00000-of-00002') or of their folders; and notes on what belongs to none."""
    parts: dict[str, list[np.ndarray]] = {}
    nowhere = []
    for path, (start, stop) in zip(files, bounds, strict=True):
        names = (path.stem.partition("-")[0], path.parent.name)
        name = next((name for name in names if part_called(name)), None)
        if name is None:
            nowhere.append(path.name)
        else:
            parts.setdefault(name, []).append(np.arange(start, stop))
    joined = {name: np.concatenate(numbers) for name, numbers in parts.items()}
    hidden = [name for name, numbers in joined.items() if len(numbers) and (labels[numbers] == -1).all()]
    kept = {name: numbers for name, numbers in joined.items() if name not in hidden}
    notes = [f"'{name}' has no labels (all -1) and is left out" for name in hidden]
    if kept and nowhere:
        notes.append(f"files that belong to no part are left out: {', '.join(nowhere[:5])}")
    return kept, notes
