"""Connections that never finish a request are closed, and do not keep others out."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from serving import Served, picture, read

HASTY = """
import sys
from vitscope.serve import connections
connections.Watched.head_s = 0.5
connections.room_for_connections = lambda: 20
from vitscope.cli.main import main
sys.exit(main())
"""
HALF = b"GET /healthz HTTP/1.1\r\nHost: local"


@pytest.fixture
def hasty(small_model: Path):
    with Served(small_model, program=HASTY) as server:
        yield server


def closed(connection: socket.socket) -> bool:
    """Whether the server has ended it; waits for that."""
    connection.settimeout(20)
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False


def test_half_a_head_is_not_waited_for(hasty: Served) -> None:
    with socket.create_connection((hasty.host, hasty.port)) as silent:
        assert closed(silent)
    with socket.create_connection((hasty.host, hasty.port)) as half:
        half.sendall(HALF)
        assert closed(half)
    kept = hasty.connect()
    kept.request("GET", "/healthz")
    assert read(kept).status == 200
    kept.sock.sendall(HALF)  # a second request, on a connection that was good once
    assert closed(kept.sock)
    kept.close()


def test_many_silent_ones_keep_nobody_out(small_model: Path) -> None:
    patient = HASTY.replace("head_s = 0.5", "head_s = 600")
    with Served(small_model, program=patient) as server:
        crowd = [socket.create_connection((server.host, server.port)) for _ in range(60)]
        try:
            for one in crowd:
                one.sendall(HALF)
            assert server.post("/predict", picture(0)).status == 200
            assert closed(crowd[0])
            crowd[-1].sendall(b"host\r\nConnection: close\r\n\r\n")  # the last are still heard
            crowd[-1].settimeout(20)
            assert crowd[-1].recv(15) == b"HTTP/1.1 200 OK"
        finally:
            for one in crowd:
                one.close()
        assert server.stop() == (0, "")
