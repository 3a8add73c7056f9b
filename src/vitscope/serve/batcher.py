"""Pictures of many requests, gathered into batches: a model takes 32 at once in little more time than a few.

A picture waits while others are known to be on their way, up to a limit; while the model is busy, what arrives gathers
by itself. One thread runs the model; requests wait for futures, so one that gives up takes nothing from the others.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from vitscope.serve.refusal import Refusal

Item = TypeVar("Item")
Answer = TypeVar("Answer")
log = logging.getLogger(__name__)


@dataclass
class _Waiting(Generic[Item, Answer]):
    item: Item
    future: asyncio.Future[Answer]
    since: float = field(default_factory=time.monotonic)


class Batcher(Generic[Item, Answer]):
    """`run` answers a list of items at once, in `pool`. How many may wait is for the caller to limit."""

    def __init__(
        self,
        run: Callable[[Sequence[Item]], Sequence[Answer]],
        pool: Executor,
        *,
        max_batch: int,
        max_delay_s: float,
        ran: Callable[[int, float], None] = lambda count, seconds: None,
    ) -> None:
        """`ran` is told of every batch how many items it had and how long it took."""
        self._run, self._pool, self._ran = run, pool, ran
        self.max_batch, self.max_delay_s = max_batch, max_delay_s
        self._queue: deque[_Waiting[Item, Answer]] = deque()
        self._coming = 0
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._work())

    async def stop(self) -> None:
        """At once: whoever still waits is told so."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        while self._queue:
            self._queue.popleft().future.cancel()

    @contextmanager
    def expecting(self) -> Iterator[Callable[[], None]]:
        """Around a request that may bring items: as long as some are expected, a batch may wait for them. What is
        yielded says that this one has brought all it will."""
        self._coming += 1
        is_here = False

        def here() -> None:
            nonlocal is_here
            if not is_here:
                is_here = True
                self._coming -= 1
                self._changed.set()

        try:
            yield here
        finally:
            here()

    def put(self, item: Item) -> asyncio.Future[Answer]:
        """Its answer, later. Cancel it, and the item is left out of the batch."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._queue.append(_Waiting(item, future))
        self._changed.set()
        return future

    async def _work(self) -> None:
        while True:
            await self._until_ready()
            batch: list[_Waiting[Item, Answer]] = []
            while self._queue and len(batch) < self.max_batch:
                waiting = self._queue.popleft()
                if not waiting.future.done():  # its client left, or its time is over
                    batch.append(waiting)
            if batch:
                await self._answer(batch)

    async def _until_ready(self) -> None:
        """Until there is a full batch, or some and nobody else to wait for, or some that waited long enough."""
        while True:
            self._changed.clear()
            left_s = None
            if self._queue:
                left_s = self._queue[0].since + self.max_delay_s - time.monotonic()
                if len(self._queue) >= self.max_batch or not self._coming or left_s <= 0:
                    return
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), left_s)

    async def _answer(self, batch: list[_Waiting[Item, Answer]]) -> None:
        items = [waiting.item for waiting in batch]
        start = time.monotonic()
        try:
            answers = await asyncio.get_running_loop().run_in_executor(self._pool, self._run, items)
            pairs = list(zip(batch, answers, strict=True))
        except Exception as error:  # whatever a model raises, the next batch gets its turn
            log.error("the model failed on a batch of %d", len(batch), exc_info=error)
            for waiting in batch:
                if not waiting.future.done():
                    waiting.future.set_exception(Refusal(500, "the model failed on this batch", fix=LOOK))
        else:
            for waiting, answer in pairs:
                if not waiting.future.done():
                    waiting.future.set_result(answer)
        finally:
            self._ran(len(batch), time.monotonic() - start)


LOOK = "the server's log has the reason; other requests are not affected"
