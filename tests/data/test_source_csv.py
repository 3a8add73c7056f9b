"""Tables of pictures: columns, separators, labels, parts, and errors that name the line."""

from __future__ import annotations

import csv
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vitscope.core.errors import DataError
from vitscope.data.config import DataConfig
from vitscope.data.decode import BadImageError
from vitscope.data.sources.table import CsvTable

CONFIG = DataConfig(name="table")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Pictures 0.png to 9.png, each of its own grey."""
    for value in range(10):
        Image.fromarray(np.full((2, 2), value * 10, dtype=np.uint8)).save(tmp_path / f"{value}.png")
    return tmp_path


def table(folder: Path, text: str | bytes, name: str = "t.csv") -> CsvTable:
    (folder / name).write_bytes(text.encode() if isinstance(text, str) else text)
    return CsvTable.open(folder / name, CONFIG)


def greys(source: CsvTable) -> list[int]:
    return [int(np.asarray(source.picture(index)).max()) for index in range(len(source))]


@pytest.mark.parametrize(("name", "mark"), [("t.csv", ","), ("t.csv", ";"), ("t.csv", "\t"), ("t.TSV", "\t")])
@pytest.mark.parametrize("header", ["image label", "Path Class", "FILENAME category", "file_name y", "img target"])
def test_columns_and_separators_are_found(folder: Path, name: str, mark: str, header: str) -> None:
    lines = [header.split(), ["3.png", "dog"], ["1.png", "cat"], ["2.png", "dog"]]
    source = table(folder, "\r\n".join(mark.join(line) for line in lines), name)
    assert source.class_names == ("cat", "dog")
    assert source.labels.tolist() == [1, 0, 1]
    assert greys(source) == [30, 10, 20]
    assert source.parts == {}
    assert source.notes == []
    assert source.where(1) == str(folder / "1.png")


@pytest.mark.parametrize("coding", ["utf-8", "utf-8-sig", "utf-16"])
def test_byte_order_marks_and_quotes(folder: Path, coding: str) -> None:
    (folder / 'a, "b".png').write_bytes((folder / "7.png").read_bytes())
    source = table(folder, 'image,label\n"a, ""b"".png",größe\n\n8.png,"two\nlines"\n'.encode(coding))
    assert greys(source) == [70, 80]
    assert source.class_names == ("größe", "two\\nlines")


def test_whole_numbers_are_class_ids(folder: Path) -> None:
    source = table(folder, "path,label\n0.png,2\n1.png,0\n2.png,10\n" + "".join(f"3.png,{n}\n" for n in range(11)))
    assert source.class_names == tuple(map(str, range(11)))  # by number, not '0', '1', '10', '2'
    assert source.labels[:3].tolist() == [2, 0, 10]
    assert source.notes == []


def test_numbers_with_gaps_are_numbered_and_noted(folder: Path) -> None:
    source = table(folder, "path,label\n0.png,20\n1.png,3.0\n2.png,1\n3.png,20\n")
    assert source.class_names == ("1", "3", "20")
    assert source.labels.tolist() == [2, 1, 0, 2]
    assert "numbered 0 to 2 in rising order" in source.notes[0]


def test_negative_numbers_are_no_classes(folder: Path) -> None:
    with pytest.raises(DataError, match="expected 0 to 3, received -1") as caught:
        table(folder, "path,label\n0.png,0\n1.png,-1\n2.png,3\n")
    assert str(caught.value.where).endswith("1.png")


def test_one_word_makes_all_labels_words(folder: Path) -> None:
    assert table(folder, "path,label\n0.png,10\n1.png,9\n2.png,x\n").class_names == ("10", "9", "x")


def test_parts(folder: Path) -> None:
    rows = "0.png,a,Train\n1.png,b,train\n2.png,a,valid\n3.png,b,TEST\n4.png,a,training\n5.png,a,unlabelled\n"
    source = table(folder, "path,label,split\n" + rows)
    assert {part: numbers.tolist() for part, numbers in source.parts.items()} == {
        "Train": [0, 1, 4],
        "valid": [2],
        "TEST": [3],
    }
    assert source.notes == ["part 'unlabelled' is not used: 1 pictures"]


def test_folds_are_no_parts(folder: Path) -> None:
    source = table(folder, "path,label,set\n0.png,a,1\n1.png,b,2\n")
    assert source.parts == {}
    assert "one pool" in source.notes[0]


def test_asked_columns(folder: Path) -> None:
    text = "image,small,label,colour\n0.png,1.png,a,x\n2.png,3.png,a,y\n"
    (folder / "t.csv").write_text(text)
    source = CsvTable.open(folder / "t.csv", DataConfig(name="t", image_column="Small", label_column="colour"))
    assert greys(source) == [10, 30]
    assert source.class_names == ("x", "y")
    with pytest.raises(DataError) as refusal:
        CsvTable.open(folder / "t.csv", DataConfig(name="t", label_column="color"))
    assert refusal.value.fix == "did you mean 'colour'?"
    assert "'image', 'small', 'label', 'colour'" in refusal.value.what


@pytest.mark.parametrize(
    ("text", "words", "where"),
    [
        ("path,label\n0.png,a\n1.png,\n", "the cell of column 'label' is empty", "line 3"),
        ("path,label\n0.png,a\n\n\n ,b\n", "the cell of column 'path' is empty", "line 5"),
        ("path,label\n0.png,a\n1.png\n", "the cell of column 'label' is empty", "line 3"),
        ("path,label,split\n0.png,a,train\n1.png,a,\n", "the cell of column 'split' is empty", "line 3"),
        ("path,label\n0.png,a,b\n", "3 cells, but 2 columns", "line 2"),
        ('path,label\n0.png,"a\n', "cannot be read", "t.csv"),
        ("path,size\n0.png,1\n", "no column for the label; the columns are 'path', 'size'", "t.csv"),
        ("0.png,a\n1.png,b\n", "no column for the image", "t.csv"),
        ("path,label,Label\n0.png,a,b\n", "two columns are called 'label'", "t.csv"),
        ("path,label\nx/0.png,a\nx/1.png,b\n", "none of the first 2 pictures is there, e.g. 'x/0.png'", "t.csv"),
        ("path,label\n", "no pictures found", "t.csv"),
        ("", "no column for the image; the columns are none", "t.csv"),
        ("path,label,split\n0.png,a,train\n1.png,zebra,test\n", "without a picture in 'train': 'zebra'", "t.csv"),
    ],
)
def test_refusals_name_the_line(folder: Path, text: str, words: str, where: str) -> None:
    with pytest.raises(DataError) as refusal:
        table(folder, text)
    assert words in refusal.value.what
    assert (refusal.value.where or "").endswith(where)
    assert refusal.value.fix


def test_without_a_header_the_fix_says_so(folder: Path) -> None:
    with pytest.raises(DataError) as refusal:
        table(folder, "0.png,a\n1.png,b\n")
    assert refusal.value.fix == "put a line with the columns' names first"


def test_absolute_paths_missing_files_and_names_no_file_has(folder: Path, tmp_path: Path) -> None:
    source = table(folder, f"path,label\n{folder / '4.png'},a\nmissing.png,a\na\0b.png,b\n")
    assert np.asarray(source.picture(0)).max() == 40
    with pytest.raises(BadImageError, match="the file is missing"):
        source.picture(1)
    with pytest.raises(BadImageError):
        source.picture(2)
    assert len(source.content_hash()) == 32


def test_undecodable_paths_stay_what_they_are(folder: Path) -> None:
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff.png")).write_bytes((folder / "6.png").read_bytes())
    source = table(folder, b"path,label\n\xff.png,a\n")
    assert greys(source) == [60]
    source.where(0).encode()


def test_the_hash_follows_pixels_and_labels_and_copies_read_the_same(folder: Path) -> None:
    text = "path,label\n0.png,a\n1.png,b\n"
    source = table(folder, text)
    first = source.content_hash()
    assert table(folder, text.replace("1.png,b", "1.png,b\n2.png,b")).content_hash() != first
    assert table(folder, text.replace("0.png,a", "0.png,c")).content_hash() != first
    copy = pickle.loads(pickle.dumps(source))
    assert copy.content_hash() == first
    assert greys(copy) == [0, 10]
    (folder / "1.png").write_bytes((folder / "2.png").read_bytes())
    assert source.content_hash() != first


def test_a_large_table_written_by_the_csv_module(folder: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [(f"{n}.png", f"class {label}, or so") for n, label in rng.integers(0, 10, (5000, 2))]
    with (folder / "t.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("path", "label"), *rows])
    source = CsvTable.open(folder / "t.csv", CONFIG)
    assert [source.class_names[label] for label in source.labels] == [label for _, label in rows]
    assert [source.path(index).name for index in range(5000)] == [name for name, _ in rows]


def test_looks_like(folder: Path) -> None:
    (folder / "t.CSV").write_text("x")
    (folder / "dir.csv").mkdir()
    assert CsvTable.looks_like(folder / "t.CSV")
    assert not any(map(CsvTable.looks_like, (folder / "dir.csv", folder / "no.csv", folder / "0.png", Path("\0.csv"))))
