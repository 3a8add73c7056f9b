"""Work on many pictures: in order, in threads only where these are of use, never far ahead of who takes it."""

from __future__ import annotations

import threading
import time

import pytest

from vitscope.data import in_threads as module
from vitscope.data.in_threads import Scanned, in_threads

SMALL, LARGE = b"x" * 100, b"x" * 100_000


def done_by(scanned: Scanned) -> tuple[int, bool]:
    """The picture's number, and whether a thread of its own worked on it."""
    index, content = scanned
    if content is LARGE and index % 4 == 0:
        time.sleep(0.002)  # so that a later chunk is done earlier
    return index, threading.current_thread() is not threading.main_thread()


@pytest.fixture(autouse=True)
def few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK_PICTURES", 2)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_large_pictures_are_worked_on_in_threads_and_come_in_order(threads: int) -> None:
    found = list(in_threads(done_by, ((index, LARGE) for index in range(41)), threads))
    assert found == [(index, True) for index in range(41)]


def test_small_ones_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(in_threads(done_by, ((index, SMALL) for index in range(7)), 2)) == [
        (index, False) for index in range(7)
    ]
    assert all(other for _, other in in_threads(done_by, ((index, SMALL) for index in range(7)), 2, is_much=True))


def test_each_chunk_is_judged_by_itself() -> None:
    """Small ones at the beginning say nothing of the rest; what could not be read weighs nothing."""
    contents = [SMALL] * 4 + [LARGE] * 4 + [OSError("gone")] * 2 + [SMALL] * 2 + [LARGE, OSError("gone")]
    found = list(in_threads(done_by, enumerate(contents), 2))
    assert [index for index, _ in found] == list(range(14))
    assert [other for _, other in found] == [False] * 4 + [True] * 4 + [False] * 4 + [True] * 2


@pytest.mark.parametrize("content", [SMALL, LARGE])
def test_nothing_is_read_far_ahead(content: bytes) -> None:
    read: list[int] = []

    def scan():
        for index in range(100):
            read.append(index)
            yield index, content

    taken = in_threads(done_by, scan(), 2)
    next(taken)
    assert len(read) <= 2 * (2 * 2 + 1)
    taken.close()
