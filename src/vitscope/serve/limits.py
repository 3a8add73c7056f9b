"""What a server takes in: so many pictures and so many bytes at a time, no request larger or slower than allowed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from vitscope.core.errors import expected
from vitscope.serve.config import MEGA
from vitscope.serve.refusal import ClientGoneError, Refusal

if TYPE_CHECKING:
    from starlette.requests import Request

AS_IS = "send it as it is, without compression"
BODIES = 8
"""Of the largest size, that may be in memory together."""


class Budget:
    """So much and no more at a time: what is taken has to be given back."""

    def __init__(self, limit: int, what: str, retry_after_s: Callable[[], int] = lambda: 1) -> None:
        self.limit, self.taken = limit, 0
        self._what, self._retry_after_s = what, retry_after_s

    def take(self, count: int) -> None:
        if self.taken + count > self.limit:
            raise Refusal(
                503,
                f"the server is busy: {self._what}",
                fix="try again after the seconds in Retry-After",
                retry_after_s=self._retry_after_s(),
            )
        self.taken += count

    def give(self, count: int) -> None:
        self.taken -= count


class Share:
    """One request's part of a budget; all of it goes back in the end."""

    def __init__(self, budget: Budget) -> None:
        self._budget, self.taken = budget, 0

    def take(self, count: int) -> None:
        self._budget.take(count)
        self.taken += count

    def give_back(self) -> None:
        self._budget.give(self.taken)
        self.taken = 0


async def read_body(request: Request, share: Share, *, limit: int, until: float) -> bytearray:
    """All of it, counted as it arrives: what a client says of its length is believed only where it is too much.
    `until` is a time of the event loop."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        raise _too_large(limit, f"{int(declared) / MEGA:,.1f} MB")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise Refusal(415, expected("Content-Encoding", "none", request.headers["content-encoding"]), fix=AS_IS)
    body = bytearray()
    try:
        async with asyncio.timeout_at(until):
            while True:
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    raise ClientGoneError
                piece = message.get("body", b"")
                if len(body) + len(piece) > limit:
                    raise _too_large(limit, "more")
                share.take(len(piece))
                body += piece
                if not message.get("more_body", False):
                    return body
    except TimeoutError:
        raise Refusal(408, "the upload took too long", fix="send less, or over a quicker line") from None


def _too_large(limit: int, received: str) -> Refusal:
    return Refusal(
        413,
        expected("request", f"up to {limit / MEGA:g} MB", received),
        fix="send smaller or fewer pictures, or start the server with a larger --max-upload-mb",
    )
