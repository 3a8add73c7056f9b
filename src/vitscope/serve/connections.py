"""Connections that say nothing: closed after a while, and at once where their place is needed.

A request that has come is watched by its deadline. Before its head is complete there is no request yet: uvicorn would
wait for ever, and enough of such connections leave no room for anybody else.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_S = 10.0
"""How long the head of a request may take."""
MOST = 2000
"""Connections at a time, where the system allows so many files."""


def room_for_connections() -> int:
    """Three quarters of the files this process may open: the model and the system need some."""
    if sys.platform == "win32":
        return MOST
    import resource

    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if files == resource.RLIM_INFINITY else max(1, min(MOST, files * 3 // 4))


class Watched(H11Protocol):
    """One connection. With `most` of them, the one that has been silent longest makes room for a new one."""

    head_s = HEAD_S
    most = MOST

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.silent_since: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()
        if len(self.connections) > self.most:
            self._make_room()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._heard()
        super().connection_lost(exc)

    def _watch(self) -> None:
        if self.conn.their_state is not h11.IDLE:
            self._heard()
        elif self._timer is None:
            self.silent_since = self.loop.time()
            self._timer = self.loop.call_later(self.head_s, self.transport.abort)

    def _heard(self) -> None:
        self.silent_since = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _make_room(self) -> None:
        silent = [one for one in self.connections if isinstance(one, Watched) and one.silent_since is not None]
        longest = min(silent, key=lambda one: one.silent_since or 0.0)  # itself, if all others are being answered
        longest.transport.abort()
        self.connections.discard(longest)
