"""S2: addresses that try to leave the server's own: 404 or 400, and nothing of any file in the answer."""

from __future__ import annotations

import socket

import pytest

from serving import LIMIT_S, Served

SECRET = "root:"
"""How /etc/passwd begins."""
PATHS = [
    "/../../../../etc/passwd",
    "/page.css/../../../../../etc/passwd",
    "/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
    "/%252e%252e/%252e%252e/etc/passwd",
    "/..%2f..%2f..%2fetc%2fpasswd",
    "/..\\..\\..\\etc\\passwd",
    "/..%5c..%5cetc%5cpasswd",
    "//etc/passwd",
    "/etc/passwd",
    "/page.css%00.html",
    "/%00",
    "/page.js\x00",
    "/page/index.html",
    "/page.py",
    "/icon.svg/",
    "/static/../page.py",
    "http://127.0.0.1/etc/passwd",
    "file:///etc/passwd",
    "/" + "a" * 60_000,
    "/%ff%fe",
    "/\xff",
]


def raw(server: Served, path: str) -> bytes:
    """The request as it is typed: a library would tidy it."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=LIMIT_S) as line:
        line.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode("latin-1"))
        told = b""
        while piece := line.recv(65_536):
            told += piece
        return told


@pytest.mark.parametrize("path", PATHS, ids=[f"path{number}" for number in range(len(PATHS))])
def test_no_address_leaves_the_server(server: Served, path: str) -> None:
    told = raw(server, path)
    status = int(told.split(b" ", 2)[1])
    assert status in (400, 404), told[:200]
    assert SECRET.encode() not in told
    assert b"import" not in told
    assert len(told) < 3000


def test_the_way_of_asking_works(server: Served) -> None:
    """Else the test above proves nothing."""
    assert raw(server, "/page.css").startswith(b"HTTP/1.1 200")
