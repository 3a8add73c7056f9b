"""Where requests are served: taken in as far as there is room, prepared by threads, answered in batches, on time."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, TypeVar

import torch
from PIL import Image
from starlette.requests import Request
from torch import Tensor

from vitscope.core.environment import usable_cpus
from vitscope.infer.predictor import Predictor
from vitscope.serve.answers import Answers, no_memory
from vitscope.serve.batcher import LOOK, Batcher
from vitscope.serve.config import ServeConfig
from vitscope.serve.features import pooled
from vitscope.serve.limits import BODIES, Budget, Share, read_body
from vitscope.serve.metrics import Metrics
from vitscope.serve.overlay import Wish
from vitscope.serve.patience import all_answers, while_wanted
from vitscope.serve.refusal import Refusal
from vitscope.serve.room import Room, Work
from vitscope.serve.uploads import Asked, read_upload
from vitscope.train.memory import is_out_of_memory

T = TypeVar("T")
log = logging.getLogger(__name__)
AT_ONCE = nullcontext()
DRAWN = 2
"""Pictures that are decoded to be drawn on: one is with the model, one is next. The others wait as they were sent."""
SMALL = 65_536
"""Bytes that are looked through on the spot; more goes to a thread, so that others need not wait."""


class Desk:
    """One model and its queue. `start` and `stop` it in the event loop that serves."""

    def __init__(self, predictor: Predictor, config: ServeConfig, metrics: Metrics) -> None:
        self.predictor, self.config, self.metrics = predictor, config, metrics
        self.answers = Answers(predictor, pixel_limit=config.pixel_limit)
        self.places = Budget(config.queue, f"{config.queue} pictures are waiting", self.seconds_until_room)
        self.bytes = Budget(BODIES * config.max_upload_bytes, "too many uploads at once")
        self.room = Room(config.pixel_limit)
        self.drawing = asyncio.Semaphore(DRAWN)
        self._threads = ThreadPoolExecutor(predictor.threads or usable_cpus(), "decode")
        self._model = ThreadPoolExecutor(1, "model")
        self._pace = 0.0  # seconds a picture takes, smoothed
        self.predict: Batcher[Tensor, Tensor] = self._batcher("/predict", self._probabilities, config.max_batch)
        self.features: Batcher[Tensor, Tensor] = self._batcher("/features", self._vectors, config.max_batch)
        self.explain: Batcher[tuple[Image.Image, Wish], bytes | Refusal] = self._batcher(
            "/explain", self.answers.draw, 1
        )
        self.not_ready: str | None = "the model is being warmed up"
        metrics.gauge("vitscope_pictures_in_work", "Pictures between arrival and answer.", lambda: self.places.taken)
        metrics.gauge("vitscope_pictures_waiting", "Pictures that wait for the model.", self._waiting)

    def start(self) -> None:
        for batcher in (self.predict, self.features, self.explain):
            batcher.start()
        self._warming = asyncio.get_running_loop().create_task(self._warm_up())

    async def stop(self) -> None:
        self.not_ready = "the server is being stopped"
        self._warming.cancel()
        for batcher in (self.predict, self.features, self.explain):
            await batcher.stop()
        self.room.close()
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._model.shutdown(wait=False, cancel_futures=True)

    def seconds_until_room(self) -> int:
        """What to tell somebody who is turned away: about as long as those who are here will take."""
        return min(max(1, math.ceil(self._pace * self.places.taken)), math.ceil(self.config.deadline_s))

    async def ask(
        self,
        request: Request,
        batcher: Batcher[Any, T],
        prepare: Callable[[Asked], Sequence[Work[Any]]],
        *,
        turn: AbstractAsyncContextManager[Any] = AT_ONCE,
    ) -> tuple[Asked, list[T | Refusal]]:
        """What a request asks, and of each of its pictures the answer or why there is none. `prepare` says for each
        what a thread has to do before the model can have it; nothing of it is done before it is its `turn`."""
        until = asyncio.get_running_loop().time() + self.config.deadline_s
        places, held = Share(self.places), Share(self.bytes)
        try:
            with batcher.expecting() as here:
                places.take(1)
                body = await read_body(request, held, limit=self.config.max_upload_bytes, until=until)
                self.metrics.bytes.add(count=len(body))
                found = await while_wanted(
                    self._served(request, body, places, batcher, prepare, here, turn), request, until=until
                )
                if found is None:
                    raise Refusal(
                        503,
                        f"no answer within {self.config.deadline_s:g} s",
                        fix="try again after the seconds in Retry-After",
                        retry_after_s=self.seconds_until_room(),
                    )
                return found
        finally:
            places.give_back()
            held.give_back()

    async def _served(
        self,
        request: Request,
        body: bytearray,
        places: Share,
        batcher: Batcher[Any, T],
        prepare: Callable[[Asked], Sequence[Work[Any]]],
        here: Callable[[], None],
        turn: AbstractAsyncContextManager[Any],
    ) -> tuple[Asked, list[T | Refusal]]:
        asked = await self._understood(request, body)
        places.take(len(asked.pictures) - 1)
        works = prepare(asked)
        async with turn:
            ready = await asyncio.gather(*(self._in_thread(work) for work in works))
            waiting = [one if isinstance(one, Refusal) else batcher.put(one) for one in ready]
            here()
            return asked, await all_answers(waiting)

    async def _understood(self, request: Request, body: bytearray) -> Asked:
        kind = request.headers.get("content-type", "")
        if len(body) <= SMALL:
            return read_upload(kind, body, most=self.config.queue)
        run = asyncio.get_running_loop().run_in_executor
        return await run(self._threads, lambda: read_upload(kind, body, most=self.config.queue))

    async def _in_thread(self, work: Work[T]) -> T | Refusal:
        """What goes wrong with one picture is told in its place; the others of its request go on."""
        try:
            return await self.room.run(self._threads, work)
        except Refusal as refusal:
            return refusal
        except Exception as error:
            if is_out_of_memory(error):
                return no_memory("not enough memory to decode it")
            log.error("a picture could not be prepared", exc_info=error)
            return Refusal(500, "the server failed on this picture", fix=LOOK)

    def _batcher(self, path: str, run: Callable[[Sequence[Any]], Sequence[Any]], most: int) -> Batcher[Any, Any]:
        def ran(count: int, seconds: float) -> None:
            self.metrics.batches.see(count, path)
            self.metrics.model_seconds.add(path, count=seconds)
            self._pace = 0.8 * self._pace + 0.2 * seconds / count

        return Batcher(run, self._model, max_batch=most, max_delay_s=self.config.max_delay_ms / 1e3, ran=ran)

    def _waiting(self) -> int:
        return self.predict.waiting + self.features.waiting + self.explain.waiting

    def _probabilities(self, images: Sequence[Tensor]) -> Sequence[Tensor]:
        return self.answers.ask(self.predictor.probabilities, images)

    def _vectors(self, images: Sequence[Tensor]) -> Sequence[Tensor]:
        return self.answers.ask(lambda batch: pooled(self.predictor.model, batch), images)

    async def _warm_up(self) -> None:
        """The first batches of a process are slow: kernels are chosen, memory is asked for."""
        config, run = self.predictor.preprocessing, asyncio.get_running_loop().run_in_executor
        blank = torch.zeros(config.in_chans, *config.img_size, dtype=torch.uint8)
        look = self._probabilities if self.predictor.labels else self._vectors
        try:
            for count in sorted({1, self.config.max_batch}):
                start = time.monotonic()
                await run(self._model, look, [blank] * count)
                self._pace = (time.monotonic() - start) / count
        except Exception as error:
            log.error("the model cannot be run", exc_info=error)
            self.not_ready = "the model cannot be run; the server's log has the reason"
        else:
            self.not_ready = None
