"""Something done to many pictures, in threads, in order, without letting what was read pile up."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from vitscope.data.sources.source import Stored, size_bytes

CHUNK_PICTURES = 128
"""Pictures a thread is given at a time: one by one the hand-over would cost as much as the work."""
CHUNK_BYTES = 8_000_000
"""Or fewer, where they are large."""
SMALL_BYTES, SMALL_PIXELS = 4_500, 96 * 96 * 3
"""Chunks of pictures up to this mean size, encoded and as plain pixels, are worked on without threads, which would only
wait for Python's lock. JPEGs of 32, 64, 96, 128 and 160 pixels, two threads on two cores beside one: 0.75, 0.79, 0.92,
1.66 and 1.23 times as fast."""
Scanned = tuple[int, Stored | Exception]
Result = TypeVar("Result")


def in_threads(
    work: Callable[[Scanned], Result], scanned: Iterable[Scanned], threads: int, *, is_much: bool = False
) -> Iterator[Result]:
    """`work` of each picture of a scan, in its order; no more than two chunks per thread wait at a time. `is_much`:
    what is made of a picture is large, however small it was."""

    def work_on(chunk: list[Scanned]) -> list[Result]:
        return [work(picture) for picture in chunk]

    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[list[Result]]] = deque()
        for chunk in _chunks(scanned):
            if is_much or not _are_small(chunk):
                waiting.append(pool.submit(work_on, chunk))
            else:
                waiting.append(Future())
                waiting[-1].set_result(work_on(chunk))
            if len(waiting) > 2 * threads:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()


def _are_small(chunk: list[Scanned]) -> bool:
    """By those that could be read."""
    shares = [
        size_bytes(content) / (SMALL_BYTES if isinstance(content, bytes) else SMALL_PIXELS)
        for _, content in chunk
        if not isinstance(content, Exception)
    ]
    return sum(shares) <= len(shares)


def _chunks(scanned: Iterable[Scanned]) -> Iterator[list[Scanned]]:
    chunk: list[Scanned] = []
    total = 0
    for index, content in scanned:
        chunk.append((index, content))
        total += size_bytes(content)
        if len(chunk) >= CHUNK_PICTURES or total >= CHUNK_BYTES:
            yield chunk
            chunk, total = [], 0
    if chunk:
        yield chunk
