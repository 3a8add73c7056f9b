"""Something done to many pictures, in threads, in order, without letting what was read pile up."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from vitscope.data.sources.source import Stored

CHUNK_PICTURES = 128
"""Pictures a thread is given at a time: one by one the hand-over would cost as much as the work."""
CHUNK_BYTES = 8_000_000
"""Or fewer, where they are large."""
Scanned = tuple[int, Stored | Exception]
Result = TypeVar("Result")


def in_threads(work: Callable[[Scanned], Result], scanned: Iterable[Scanned], threads: int) -> Iterator[Result]:
    """`work` of each picture of a scan, in its order; no more than two chunks per thread wait at a time."""

    def work_on(chunk: list[Scanned]) -> list[Result]:
        return [work(picture) for picture in chunk]

    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[list[Result]]] = deque()
        for chunk in _chunks(scanned):
            waiting.append(pool.submit(work_on, chunk))
            if len(waiting) > 2 * threads:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()


def _chunks(scanned: Iterable[Scanned]) -> Iterator[list[Scanned]]:
    chunk: list[Scanned] = []
    size_bytes = 0
    for index, content in scanned:
        chunk.append((index, content))
        size_bytes += len(content) if isinstance(content, bytes) else getattr(content, "nbytes", 0)
        if len(chunk) >= CHUNK_PICTURES or size_bytes >= CHUNK_BYTES:
            yield chunk
            chunk, size_bytes = [], 0
    if chunk:
        yield chunk
