"""A table of pictures: a .csv or .tsv file whose first line names its columns.

One column holds paths (relative to the table's folder, or absolute), one the labels, perhaps one the part: train, val
or test. Separated by comma, semicolon or tab; quoted as spreadsheets do; UTF-8 with or without a byte-order mark, or
UTF-16. Bytes that are no text stay what they are, so that every path a file can have can stand in a table.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Self

import numpy as np

from vitscope.core.errors import DataError
from vitscope.core.suggest import did_you_mean, plainly
from vitscope.data.config.data import DataConfig
from vitscope.data.decode import bad_image
from vitscope.data.sources.classes import number_classes
from vitscope.data.sources.files import PICTURE_SUFFIXES, PictureFiles, printable
from vitscope.data.splits import part_called

SUFFIXES = (".csv", ".tsv")
IMAGE_WORDS = (
    *("image", "image_path", "path", "file", "filename", "file_name", "filepath", "file_path", "img", "img_path"),
    *("image_file", "image_name", "image_filename", "img_name", "picture", "relative_path", "images", "paths", "files"),
)
LABEL_WORDS = (
    *("label", "class", "target", "category", "class_name", "label_name", "classname", "y", "labels"),
    *("class_id", "label_id", "category_id"),
)
"""Words for the columns; the first that is there counts."""
PART_WORDS = ("split", "part", "set", "subset", "partition", "fold")
WHOLE_NUMBER = re.compile(r"[+-]?\d{1,18}(\.0*)?", re.ASCII)
TRIED = 20
"""Pictures that are looked for on opening: where none of the first is there, the paths start somewhere else."""


class CsvTable(PictureFiles):
    """One line per picture: its path, its label, perhaps its part."""

    kind = "CSV table"

    @classmethod
    def looks_like(cls, path: Path) -> bool:
        try:
            return path.suffix.lower() in SUFFIXES and path.is_file()
        except (OSError, ValueError):
            return False

    @classmethod
    def open(cls, path: Path, config: DataConfig) -> Self:
        path = Path(path)
        try:
            rows = _rows(path)
            header = [name.strip() for name in next(rows, (0, []))[1]]
            image, label, part = _columns(header, path, config)
            wanted = [column for column in (image, label, part) if column is not None]
            cells = [_cells(line, row, header, wanted, path) for line, row in rows]
        except (OSError, UnicodeError, csv.Error) as error:
            raise DataError(
                f"the table cannot be read: {bad_image(error).what}",
                where=printable(str(path)),
                fix="save it as CSV with one header line, in UTF-8",
            ) from None
        paths = [row[0] for row in cells]
        labels, names, notes = _numbered([row[1].strip() for row in cells])
        parts, told = _parts([row[2].strip() for row in cells] if part is not None else [])
        _refuse_wrong_start(paths, path)
        return cls(str(path), path.parent, paths, labels, tuple(map(printable, names)), parts, [*notes, *told])


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """(line number, cells) of every line that is not empty, the header first."""
    with path.open("rb") as file:
        wide = file.read(2) in (b"\xff\xfe", b"\xfe\xff")
    errors = "strict" if wide else "surrogateescape"
    with path.open(encoding="utf-16" if wide else "utf-8-sig", errors=errors, newline="") as file:
        header = file.readline()
        file.seek(0)
        unquoted = re.sub(r'"[^"]*"', "", header)
        preferred = "\t,;" if path.suffix.lower() == ".tsv" else ",;\t"
        reader = csv.reader(file, delimiter=max(preferred, key=unquoted.count), strict=True)
        for row in reader:
            if any(cell.strip() for cell in row):
                yield reader.line_num, row


def _columns(header: Sequence[str], path: Path, config: DataConfig) -> tuple[int, int, int | None]:
    """Numbers of the columns of paths, labels and parts."""
    image = _column(header, config.image_column, IMAGE_WORDS, "image_column", path)
    label = _column(header, config.label_column, LABEL_WORDS, "label_column", path)
    known = [plainly(name) for name in header]
    part = next((known.index(word) for word in PART_WORDS if word in known), None)
    return image, label, None if part in (image, label) else part


def _column(header: Sequence[str], asked: str | None, words: Sequence[str], setting: str, path: Path) -> int:
    known = [plainly(name) for name in header]
    names = [plainly(asked)] if asked is not None else words
    found = next((known.index(name) for name in names if name in known), None)
    shown = ", ".join(map(repr, map(printable, header))) or "none"
    if found is None:
        headless = any(Path(name).suffix.lower() in PICTURE_SUFFIXES for name in header)
        what = f"no column '{asked}'" if asked is not None else f"no column for the {setting.removesuffix('_column')}"
        guess = did_you_mean(asked, header) if asked is not None else None
        fix = (
            "put a line with the columns' names first"
            if headless
            else f"name it: {setting} (`vitscope data ... --{setting.replace('_', '-')}`)"
        )
        raise DataError(f"{what}; the columns are {shown}", where=printable(str(path)), fix=guess or fix)
    if known.count(known[found]) > 1:
        raise DataError(
            f"two columns are called {header[found]!r}", where=printable(str(path)), fix="rename one of them"
        )
    return found


def _cells(line: int, row: list[str], header: Sequence[str], wanted: Sequence[int], path: Path) -> list[str]:
    """The cells that count. A line of another length would give pictures their neighbours' labels."""
    where = f"{printable(str(path))}, line {line}"
    if len(row) > len(header) and any(cell.strip() for cell in row[len(header) :]):
        raise DataError(
            f"{len(row)} cells, but {len(header)} columns", where=where, fix="quote cells that hold the separator"
        )
    for column in wanted:
        if column >= len(row) or not row[column].strip():
            raise DataError(f"the cell of column '{header[column]}' is empty", where=where, fix="fill it in, or remove")
    return [row[column] for column in wanted]


def _numbered(labels: list[str]) -> tuple[np.ndarray, tuple[str, ...], list[str]]:
    if labels and all(WHOLE_NUMBER.fullmatch(label) for label in labels):
        return number_classes(np.array([int(label.partition(".")[0]) for label in labels], dtype=np.int64))
    names = sorted(set(labels))
    number_of = {name: number for number, name in enumerate(names)}
    return np.array([number_of[label] for label in labels], dtype=np.int64), tuple(names), []


def _parts(names: list[str]) -> tuple[dict[str, np.ndarray], list[str]]:
    """Numbers of the pictures in each part; spellings of one part ('Train', 'training') go together."""
    spelled: dict[str, str] = {}
    members: dict[str, list[int]] = {}
    for number, name in enumerate(names):
        part = spelled.setdefault(part_called(name) or name, name)
        members.setdefault(part, []).append(number)
    strange = [part for part in members if part_called(part) is None]
    if strange and len(strange) == len(members):
        return {}, [f"the parts are called neither train, val nor test ({strange[0]!r}, ...): taken as one pool"]
    notes = [f"part {printable(name)!r} is not used: {len(members[name]):,} pictures" for name in strange]
    return {name: np.array(numbers) for name, numbers in members.items() if name not in strange}, notes


def _refuse_wrong_start(paths: list[str], table: Path) -> None:
    tried = list(islice(paths, TRIED))
    try:
        found = any((table.parent / path).exists() for path in tried)
    except (OSError, ValueError):  # a name no file can have: its own picture says so
        return
    if tried and not found:
        raise DataError(
            f"none of the first {len(tried)} pictures is there, e.g. {printable(tried[0])!r}",
            where=printable(str(table)),
            fix=f"write paths relative to the table's folder ({printable(str(table.parent))}), or absolute ones",
        )
