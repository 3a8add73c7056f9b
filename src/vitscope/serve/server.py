"""A server in this process: it listens, says where, and leaves in order when it is told to."""

from __future__ import annotations

import importlib.util
import signal
import socket
import sys
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

from vitscope.core.errors import EXIT_DONE, EXIT_INTERRUPTED, VitscopeError
from vitscope.serve.config import ServeConfig
from vitscope.serve.door import refuse_open_door

if TYPE_CHECKING:
    from vitscope.infer.predictor import Predictor

GRACE_S = 5.0
"""What requests that are under way get beyond their deadline when the server is stopped."""
SWITCH_S = 0.0005
"""How long one thread keeps Python's lock from the others. The model gives it up for every operation, and has to get it
back from the thread that talks HTTP: at Python's own 5 ms, that is most of a small batch's time."""


def require_packages() -> None:
    missing = [name for name in ("fastapi", "uvicorn") if importlib.util.find_spec(name) is None]
    if missing:
        raise VitscopeError(
            f"serving needs {' and '.join(missing)}", where="not installed", fix="pip install 'vitscope[serve]'"
        )


def listen(config: ServeConfig, *, token: str | None) -> socket.socket:
    """The socket, bound: before a model is loaded it is known whether the address can be had."""
    refuse_open_door(config.host, token)
    host = config.host.strip("[]")
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, config.port, type=socket.SOCK_STREAM)[0]
        return _bound(socket.socket(family, kind), address)
    except OSError as error:
        raise VitscopeError(
            f"cannot listen on {host}, port {config.port}",
            where=error.strerror or str(error),
            fix="--port 0 takes any port that is free",
        ) from None


def _bound(made: socket.socket, address: Any) -> socket.socket:
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
    except OSError:
        made.close()
        raise
    return made


def address_of(bound: socket.socket) -> str:
    """`http://127.0.0.1:8000`; for a socket that listens everywhere, with this machine's name."""
    host, port = bound.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = socket.gethostname()
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve(
    predictor: Predictor,
    config: ServeConfig,
    bound: socket.socket,
    *,
    name: str,
    token: str | None = None,
    started: Callable[[], None] = lambda: None,
) -> int:
    """Until a signal. Those who are being answered get their answers; the exit code is 0 after SIGTERM and 130 after
    Ctrl-C. `started` is called when the first request may come."""
    import uvicorn

    from vitscope.serve import connections
    from vitscope.serve.app import make_app

    class Protocol(connections.Watched):
        most = connections.room_for_connections()

    class Server(uvicorn.Server):
        stopped_by = signal.SIGTERM

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            started()

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            """Uvicorn's own would raise the signal once more at the end, and the exit code would be the signal's."""
            self.force_exit = self.should_exit
            self.should_exit, self.stopped_by = True, signal.Signals(sig)

    settings = uvicorn.Config(
        make_app(predictor, config, name=name, token=token),
        loop="asyncio",
        http=Protocol,
        ws="none",
        lifespan="on",
        log_config=None,
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=round(config.deadline_s + GRACE_S),
    )
    server = Server(settings)
    sys.setswitchinterval(SWITCH_S)
    server.run(sockets=[bound])
    return EXIT_INTERRUPTED if server.stopped_by == signal.SIGINT else EXIT_DONE
