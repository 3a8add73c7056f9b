"""The cache: what is whole is used, what is damaged is made again, what cannot be kept is no error."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from vitscope.data import cache


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VITSCOPE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def put(key: str, content: bytes = b"pictures", kind: str = "pictures") -> Path:
    entry = cache.Writing(kind, key)
    (entry.folder / "data.bin").write_bytes(content)
    return entry.finish(about="me")


def test_what_was_put_is_found() -> None:
    assert cache.find("pictures", "abc") is None
    folder = put("abc")
    found = cache.find("pictures", "abc")
    assert found is not None
    assert found[0] == folder
    assert found[1]["about"] == "me"
    assert (folder / "data.bin").read_bytes() == b"pictures"


def test_an_entry_is_unseen_until_it_is_finished(own_cache: Path) -> None:
    entry = cache.Writing("pictures", "abc")
    (entry.folder / "data.bin").write_bytes(b"half")
    assert cache.find("pictures", "abc") is None
    entry.abandon()
    assert list((own_cache / "pictures").iterdir()) == []


@pytest.mark.parametrize("damage", ["flip", "cut", "gone", "meta"])
def test_a_damaged_entry_is_thrown_away(damage: str, caplog: pytest.LogCaptureFixture) -> None:
    folder = put("abc")
    data = folder / "data.bin"
    if damage == "flip":
        data.write_bytes(b"pictureS")
    elif damage == "cut":
        data.write_bytes(b"pict")
    elif damage == "gone":
        (folder / "meta.json").write_text('{"crc32": {"other.bin": 0}}')
    else:
        (folder / "meta.json").write_text("{")
    assert cache.find("pictures", "abc") is None
    assert "damaged" in caplog.text
    put("abc")
    assert cache.find("pictures", "abc") is not None


def test_the_quicker_of_two_writers_counts() -> None:
    slow = cache.Writing("pictures", "abc")
    (slow.folder / "data.bin").write_bytes(b"slow")
    put("abc", b"quick")
    place = slow.finish()
    assert (place / "data.bin").read_bytes() == b"quick"
    assert not slow.folder.exists()


def test_least_recently_used_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    for age, key in enumerate(("new", "used", "old")):
        folder = put(key, bytes(1000))
        os.utime(folder / "meta.json", (1000 - age, 1000 - age))
    cache.find("pictures", "old")  # now the newest
    monkeypatch.setattr(cache, "LIMIT_BYTES", 3500)
    put("another", bytes(1000), kind="spool")
    assert [key for key in ("new", "used", "old") if cache.find("pictures", key)] == ["new", "old"]
    assert cache.find("spool", "another")


def test_keys_and_hashes_tell_everything_apart(tmp_path: Path) -> None:
    assert cache.key_of("a", "b") == cache.key_of("a", "b")
    assert cache.key_of("a", "b") != cache.key_of("ab", "")
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_bytes(b"1")
    two.write_bytes(b"2")
    first = cache.hash_of_files([one, two])
    assert first == cache.hash_of_files([one, two])
    assert first != cache.hash_of_files([two, one])
    assert first != cache.hash_of_files([one, two], salt="x")
    os.utime(one, (1, 1))
    assert first == cache.hash_of_files([one, two])
    two.write_bytes(b"3")
    assert first != cache.hash_of_files([one, two])


def test_what_killed_writers_left_goes_after_a_day(own_cache: Path) -> None:
    killed, busy = cache.Writing("pictures", "killed"), cache.Writing("pictures", "busy")
    (killed.folder / "data.bin").write_bytes(b"half")
    long_ago = time.time() - 2 * cache.LEFT_BEHIND_S
    os.utime(killed.folder, (long_ago, long_ago))
    put("another")
    assert not killed.folder.exists()
    assert busy.folder.exists()


def test_one_process_makes_and_the_others_wait(own_cache: Path) -> None:
    """Four processes want one entry: it is made once."""
    program = (
        "import sys, time; from vitscope.data import cache\n"
        "with cache.making('pictures', 'abc'):\n"
        "    if cache.find('pictures', 'abc') is None:\n"
        "        time.sleep(0.5); entry = cache.Writing('pictures', 'abc'); print('made')\n"
        "        (entry.folder / 'data.bin').write_bytes(b'x'); entry.finish()\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) for _ in range(4)]
    said = [process.communicate(timeout=60)[0] for process in running]
    assert [process.returncode for process in running] == [0] * 4
    assert "".join(said).count("made") == 1
