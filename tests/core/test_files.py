"""A file is the old or the new version; JSON is strict."""

from __future__ import annotations

import json
import math
import os
import stat
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vitscope.core import files, strict_json
from vitscope.core.files import append_line, write_atomically, write_json


def test_content_is_replaced_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    write_atomically(path, b"old, and longer")
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.bin"]


@pytest.mark.parametrize("broken", ["fsync", "replace"])
def test_a_failed_write_leaves_the_old_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "a.bin"
    write_atomically(path, b"old")
    if broken == "fsync":
        monkeypatch.setattr(files.os, "fsync", full)
    else:
        monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.bin"]


def test_new_files_follow_the_umask_and_leave_it_alone(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_atomically(tmp_path / "a.bin", b"x")
        seen = os.umask(0o027)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a.bin").stat().st_mode) == 0o640
    assert seen == 0o027


def test_the_umask_is_never_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To read it is to set it for a moment, and two threads that do so can leave it at 0 for good."""

    def refuse(_: int) -> int:
        raise AssertionError("the umask was changed")

    monkeypatch.setattr(os, "umask", refuse)
    write_atomically(tmp_path / "a.bin", b"x")
    assert (tmp_path / "a.bin").read_bytes() == b"x"


def test_a_reader_never_sees_half_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"n": 0, "fill": "x" * 5000})
    stop = threading.Event()
    seen: list[object] = []

    def read() -> None:
        while not stop.is_set():
            try:
                seen.append(json.loads(path.read_bytes())["n"])
            except ValueError as error:
                seen.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    for n in range(1, 100):
        write_json(path, {"n": n, "fill": "x" * 5000})
    stop.set()
    reader.join()
    assert seen
    assert not [value for value in seen if isinstance(value, Exception)]


def test_json_is_strict_and_readable(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"loss": math.nan, "best": [math.inf, -math.inf, 1.5], "name": "Prüfung 中文"})

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    text = path.read_text(encoding="utf-8")
    assert json.loads(text, parse_constant=refuse) == {
        "loss": "NaN",
        "best": ["Infinity", "-Infinity", 1.5],
        "name": "Prüfung 中文",
    }
    assert "中文" in text
    assert text.endswith("}\n")


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(values)
def test_encode_and_decode_are_inverse(value: object) -> None:
    words = json.dumps(strict_json.encode(value), allow_nan=False)
    # repr, because NaN is not equal to itself
    assert repr(strict_json.decode(json.loads(words))) == repr(strict_json.decode(value))


def test_lines_are_added_one_by_one(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    append_line(path, "first")
    append_line(path, "Prüfung 中文")
    assert path.read_bytes() == "first\nPrüfung 中文\n".encode()


def test_a_line_is_one_write(tmp_path: Path) -> None:
    """Two processes that append at once do not tear each other's lines."""
    path = tmp_path / "a.jsonl"
    lines = [f"{number} " * 50 for number in range(4)]

    def write(line: str) -> None:
        for _ in range(50):
            append_line(path, line)

    threads = [threading.Thread(target=write, args=(line,)) for line in lines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = path.read_text().splitlines()
    assert sorted(found) == sorted(line for line in lines for _ in range(50))


def test_a_line_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        append_line(tmp_path / "nowhere" / "a.jsonl", "first")
