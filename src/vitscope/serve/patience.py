"""Waiting for an answer no longer than somebody wants it: until its deadline, and while its client is there."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from starlette.requests import Request

from vitscope.serve.refusal import ClientGoneError, Refusal

T = TypeVar("T")


async def while_wanted(work: Coroutine[Any, Any, T], request: Request, *, until: float) -> T | None:
    """What comes of `work`; None where its time (of the event loop) is over. A client that leaves is an error. The
    request's body must have been read: what it receives after that is that it is gone."""
    loop = asyncio.get_running_loop()
    working, leaving = loop.create_task(work), loop.create_task(_gone(request))
    both = {working, leaving}
    try:
        done, _ = await asyncio.wait(both, timeout=max(0.0, until - loop.time()), return_when=asyncio.FIRST_COMPLETED)
        if working in done:
            return working.result()
        if leaving in done:
            raise ClientGoneError
        return None
    finally:
        for task in both:
            task.cancel()


async def all_answers(waiting: Sequence[Refusal | asyncio.Future[T]]) -> list[T | Refusal]:
    """Each in its place. Where the whole is given up, so is each."""
    try:
        return [one if isinstance(one, Refusal) else await _answer(one) for one in waiting]
    finally:
        for one in waiting:
            if not isinstance(one, Refusal):
                one.cancel()


async def _answer(waiting: asyncio.Future[T]) -> T | Refusal:
    try:
        return await waiting
    except Refusal as refusal:
        return refusal


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
