"""Pictures in an order drawn by lot: whenever one stops, what has come is a fair sample."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pictures_in_memory import InMemory

from vitscope.data.config import DataConfig
from vitscope.data.sources import parquet, stirred
from vitscope.data.sources.open import open_source
from vitscope.data.sources.source import Source
from vitscope.data.sources.stirred import Stream

COUNT, CLASSES = 1000, 10
LABELS = [number // (COUNT // CLASSES) for number in range(COUNT)]
CONTENTS = [number.to_bytes(2, "big") * 30 for number in range(COUNT)]
KINDS = ["files", "one row group", "small row groups", "uneven row groups", "spool"]


def in_class_order(kind: str, folder: Path) -> Source:
    """Class after class, as a folder of pictures is, and the file made of it."""
    if kind == "files":
        return InMemory(CONTENTS, LABELS, [str(label) for label in range(CLASSES)])
    table = pa.table({"image": [{"bytes": content, "path": None} for content in CONTENTS], "label": LABELS})
    ends = {"small row groups": list(range(40, COUNT, 40)), "uneven row groups": [20, 40, 60, 80]}.get(kind, [])
    with pq.ParquetWriter(folder / "all.parquet", table.schema) as file:
        for first, end in zip([0, *ends], [*ends, COUNT], strict=True):
            file.write_table(table.slice(first, end - first), row_group_size=COUNT)
    source = open_source(str(folder), DataConfig(name=str(folder)))
    if kind == "spool":
        source.prepare_random_access(keep=False)
    return source


def by_lot(source: Source, asked: Any, seed: int = 0) -> list[int]:
    numbers = []
    for number, stored in source.scan_by_lot(asked, np.random.default_rng(seed)):
        assert stored == CONTENTS[number]
        numbers.append(number)
    return numbers


@pytest.mark.parametrize("kind", KINDS)
def test_each_comes_once_in_another_order_with_each_seed(kind: str, tmp_path: Path) -> None:
    source = in_class_order(kind, tmp_path)
    asked = [number for number in range(COUNT) if number % 7]
    first = by_lot(source, asked)
    assert sorted(first) == asked != first
    assert by_lot(source, asked) == first
    assert by_lot(source, asked, seed=1) != first
    assert by_lot(source, []) == []


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_ones_stand_for_all(kind: str, tmp_path: Path) -> None:
    """Of 200 drawn by lot each class has 20, give or take 4."""
    counts = np.bincount([LABELS[number] for number in by_lot(in_class_order(kind, tmp_path), range(COUNT))[:200]])
    assert len(counts) == CLASSES
    assert counts.min() >= 8
    assert counts.max() <= 34


def test_they_do_where_a_file_is_much_larger_than_what_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "STRETCH_BYTES", 600)
    monkeypatch.setattr(stirred, "POOL_BYTES", 3000)
    numbers = by_lot(in_class_order("small row groups", tmp_path), range(COUNT))
    assert sorted(numbers) == list(range(COUNT))
    counts = np.bincount([LABELS[number] for number in numbers[:200]])
    assert len(counts) == CLASSES
    assert counts.min() >= 5
    assert counts.max() <= 40


def test_no_row_group_is_read_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = in_class_order("small row groups", tmp_path)
    groups: list[int] = []
    rows: list[int] = []
    begin = pq.ParquetFile.iter_batches

    def counted(file: pq.ParquetFile, *, row_groups: list[int], **settings: Any) -> Iterator[pa.RecordBatch]:
        groups.extend(row_groups)
        for batch in begin(file, row_groups=row_groups, **settings):
            rows.append(len(batch))
            yield batch

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", counted)
    monkeypatch.setattr(parquet, "STRETCH_BYTES", 600)
    by_lot(source, range(COUNT))
    assert sorted(groups) == list(range(25))
    assert sum(rows) == COUNT
    assert len(rows) > 50, "in stretches"


@dataclass
class Some:
    numbers: list[tuple[int, int]]
    size_bytes: int = 1

    def __len__(self) -> int:
        return len(self.numbers)


def test_a_longer_stream_has_more_turns_and_not_all_are_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stirred, "POOL_BYTES", 1)
    monkeypatch.setattr(stirred, "OPEN_STREAMS", 4)
    begun: set[int] = set()
    most = 0

    def stretches(stream: int, count: int) -> Iterator[Some]:
        nonlocal most
        for place in range(count):
            begun.add(stream)
            most = max(most, len(begun))
            if place == count - 1:
                begun.remove(stream)
            yield Some([(stream, place)])

    counts = [2, 300, 2, 2]
    streams = [Stream(count, stretches(number, count)) for number, count in enumerate(counts)]
    found = [one.numbers[place] for one, place in stirred.stirred(streams, np.random.default_rng(0))]
    assert sorted(found) == [(stream, place) for stream, count in enumerate(counts) for place in range(count)]
    assert sum(stream == 1 for stream, _ in found[:60]) > 50

    mistaken = [Stream(count, stretches(count, 3)) for count in (1, 5)]
    assert len(list(stirred.stirred(mistaken, np.random.default_rng(0)))) == 6
    streams = [Stream(3, stretches(number, 3)) for number in range(30)]
    most = 0
    assert len(list(stirred.stirred(streams, np.random.default_rng(0)))) == 90
    assert most == 4
