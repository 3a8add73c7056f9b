"""What every request passes on its way in and every answer on its way out: the door, the headers, the counting."""

from __future__ import annotations

import asyncio
import time

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vitscope.serve.door import Door
from vitscope.serve.metrics import Metrics
from vitscope.serve.page import HEADERS
from vitscope.serve.refusal import ClientGoneError, Refusal

LINGER_BYTES = 64_000_000
LINGER_S = 2.0
SMALL = 1_000_000
"""Bytes worth reading to the end, so that the connection can be used again."""
EXTRA = [(name.encode(), value.encode()) for name, value in HEADERS.items()]


class Front:
    """Around an app. A refusal is told while its request may still be on the way; a connection that is closed then
    would be reset, and most clients would never see the answer. So the rest is read and dropped, within limits."""

    def __init__(self, app: ASGIApp, door: Door, metrics: Metrics, paths: frozenset[str]) -> None:
        """`paths` are counted by name, all others together: names that clients invent would fill the memory."""
        self._app, self._door, self._metrics, self._paths = app, door, metrics, paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(scope, receive, send)
        path = scope["path"] if scope["path"] in self._paths else "other"
        start = time.monotonic()
        try:
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
            try:
                self._door.check(scope["method"], scope["path"], headers)
            except Refusal as refusal:
                await as_json(refusal)(scope, exchange.receive, exchange.send)
            else:
                await self._app(scope, exchange.receive, exchange.send)
        except ClientGoneError:
            self._metrics.left.add()
        finally:
            if exchange.status is not None:
                self._metrics.requests.add(path, str(exchange.status))
                self._metrics.seconds.see(time.monotonic() - start, path)


def as_json(refusal: Refusal) -> JSONResponse:
    return JSONResponse(refusal.content(), refusal.status, refusal.headers())


class _Exchange:
    """One request and its answer."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._receive, self._send = receive, send
        headers = dict(scope["headers"])
        self._all_received = not headers.keys() & {b"content-length", b"transfer-encoding"}
        self._is_small = headers.get(b"content-length", b"x").isdigit() and int(headers[b"content-length"]) <= SMALL
        self._invited = b"expect" not in headers
        self.status: int | None = None

    async def receive(self) -> Message:
        self._invited = True  # whoever asked whether to send is told so by the first call
        message = await self._receive()
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            self._all_received = True
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            if self._is_small:  # it is all but here: the connection can go on
                await self._linger()
            closing = [] if self._all_received else [(b"connection", b"close")]
            await self._send({**message, "headers": [*message["headers"], *EXTRA, *closing]})
        elif message.get("more_body", False) or self._all_received or not self._invited:
            await self._send(message)
        else:
            await self._send({**message, "more_body": True})
            await self._linger()
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _linger(self) -> None:
        """Read and drop what is still to come, if its client sends it unasked."""
        dropped = 0
        try:
            async with asyncio.timeout(LINGER_S):
                while self._invited and not self._all_received and dropped < LINGER_BYTES:
                    dropped += len((await self.receive()).get("body", b""))
        except TimeoutError:
            return
