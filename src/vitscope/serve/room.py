"""Room for large pictures: so many pixels may be decoded at a time, and who finds no room waits in line."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")
SMALL_PIXELS = 1_000_000
"""Pictures of so many pixels never wait: there are no more of them in memory than threads."""


@dataclass(frozen=True)
class Work(Generic[T]):
    """What a thread does for a picture."""

    pixels: Callable[[], int]
    """How many it has, by its head alone."""
    do: Callable[[], T]


@dataclass(frozen=True)
class _Large:
    pixels: int


class Room:
    """`limit` is what the largest picture takes. In the order of arrival, so that a large one has its turn too."""

    def __init__(self, limit: int) -> None:
        self.limit, self.taken = limit, 0
        # The C library keeps what a thread has freed for that thread, so the largest all go through one.
        self._one = ThreadPoolExecutor(1, "large")
        self._line: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def run(self, pool: Executor, work: Work[T]) -> T:
        """`work` in a thread of the pool. One who waits for room keeps no thread waiting."""
        loop = asyncio.get_running_loop()

        def attempt() -> T | _Large:
            pixels = work.pixels()
            return work.do() if pixels <= SMALL_PIXELS else _Large(pixels)

        found = await loop.run_in_executor(pool, attempt)
        if not isinstance(found, _Large):
            return found
        count = min(found.pixels, self.limit)
        await self._enter(count)
        try:
            doing = (self._one if count > self.limit // 4 else pool).submit(work.do)
        except BaseException:
            self._leave(count)
            raise

        # Not when the request ends: a client that leaves does not stop the thread, which has the pixels still.
        def done(_: object) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(self._leave, count)

        doing.add_done_callback(done)
        return await asyncio.wrap_future(doing)

    def close(self) -> None:
        self._one.shutdown(wait=False, cancel_futures=True)

    async def _enter(self, count: int) -> None:
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append((count, place))
        self._admit()
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():  # it was let in at the very moment it left
                self._leave(count)
            self._admit()
            raise

    def _leave(self, count: int) -> None:
        self.taken -= count
        self._admit()

    def _admit(self) -> None:
        while self._line:
            count, place = self._line[0]
            if not place.done():
                if self.taken + count > self.limit:
                    return
                self.taken += count
                place.set_result(None)
            self._line.popleft()
