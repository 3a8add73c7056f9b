"""S3: uploads of too many bytes or pixels, of a wrong kind, or empty: refused in words; memory stays, others go on."""

from __future__ import annotations

import io
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from PIL import Image

from serving import Answer, Served, encoded, form, picture, read

GIGABYTE = 1_000_000_000
PIECE = bytes(1_000_000)
ROOM_MB = 100


@pytest.fixture(scope="module")
def own_server(small_model: Path) -> Iterator[Served]:
    """Its memory is looked at, so nobody else uses it."""
    with Served(small_model) as started:
        for _ in range(3):
            started.post("/predict", picture(0))
        yield started


@contextmanager
def others_go_on(server: Served) -> Iterator[None]:
    """Somebody else asks all the while, and is answered each time."""
    ended, statuses = threading.Event(), []

    def ask() -> None:
        while not ended.is_set():
            statuses.append(server.post("/predict", picture(1)).status)
            time.sleep(0.02)

    other = threading.Thread(target=ask)
    other.start()
    try:
        yield
    finally:
        ended.set()
        other.join()
    assert statuses
    assert set(statuses) == {200}


def upload(server: Served, *, chunked: bool) -> tuple[Answer | None, int]:
    """A gigabyte of zeros, as far as the server takes it: its answer and how much was sent."""
    connection, sent = server.connect(), 0
    connection.putrequest("POST", "/predict")
    connection.putheader("Content-Type", "image/png")
    connection.putheader(*(("Transfer-Encoding", "chunked") if chunked else ("Content-Length", str(GIGABYTE))))
    connection.endheaders()
    try:
        while sent < GIGABYTE:
            connection.send(b"%x\r\n" % len(PIECE) + PIECE + b"\r\n" if chunked else PIECE)
            sent += len(PIECE)
    except (BrokenPipeError, ConnectionResetError):
        pass
    try:
        return read(connection), sent
    except ConnectionError:  # this client went on sending for too long to hear it
        return None, sent
    finally:
        connection.close()


@pytest.mark.parametrize("chunked", [False, True], ids=["with a length", "in chunks"])
def test_a_gigabyte_is_cut_off(own_server: Served, chunked: bool) -> None:
    before = own_server.memory_mb("VmHWM:")
    with others_go_on(own_server):
        answer, sent = upload(own_server, chunked=chunked)
    assert sent < GIGABYTE / 2
    assert answer is None or answer.status == 413
    assert own_server.memory_mb("VmHWM:") - before < ROOM_MB
    assert own_server.counted('vitscope_requests_total{path="/predict",status="413"}') >= 1


def test_a_client_that_listens_hears_why(own_server: Served) -> None:
    """One that sends a little too much, and one that asks first and so need not send at all."""
    answer = own_server.ask("POST", "/predict", bytes(33_000_000), {"content-type": "image/png"})
    assert answer.status == 413
    assert "32 MB" in answer.json()["error"]
    connection = own_server.connect()
    connection.putrequest("POST", "/predict")
    for name, value in {"Content-Type": "image/png", "Content-Length": str(GIGABYTE), "Expect": "100-continue"}.items():
        connection.putheader(name, value)
    connection.endheaders()
    assert read(connection).status == 413
    connection.close()


def test_a_picture_of_120_megapixels_in_few_bytes(own_server: Served) -> None:
    content = encoded(Image.new("1", (12_000, 10_000)), optimize=True)
    assert len(content) < 100_000
    before = own_server.memory_mb("VmHWM:")
    with others_go_on(own_server):
        for path in ("/predict", "/features", "/explain"):
            answer = own_server.post(path, content)
            assert answer.status == 413
            assert "120,000,000 pixels" in answer.json()["error"]
    assert own_server.memory_mb("VmHWM:") - before < ROOM_MB


@pytest.mark.parametrize("path", ["/predict", "/features", "/explain"])
def test_what_is_no_picture_is_told(own_server: Served, path: str) -> None:
    eps = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n(x) run\n"
    for content, status, word in (
        (b"", 400, "empty"),
        (b"just a text", 415, "JPEG"),
        (eps, 415, "JPEG"),
        (b"%!PSftypavif" + eps, 415, "JPEG"),
        (picture(0)[:200], 400, ""),
        (picture(0, file_format="JPEG")[:300], 400, ""),
    ):
        answer = own_server.post(path, content)
        assert answer.status == status
        assert word in answer.json()["error"]


def test_requests_that_are_not_understood_are_told(own_server: Served) -> None:
    body, kind = form([("a.png", picture(0))])
    as_json = {"content-type": "application/json"}
    asked = [
        (body, {"content-type": "text/plain"}, 415),
        (body, {}, 415),
        (body, {**kind, "content-encoding": "gzip"}, 415),
        (b"", kind, 400),
        (b"", as_json, 400),
        (body[:-30], kind, 400),
        (body, {"content-type": "multipart/form-data"}, 400),
        (form([])[0], kind, 400),
        (b"[1, 2]", as_json, 400),
        (b"{", as_json, 400),
        (b"[" * 100_000, as_json, 400),
        (json.dumps({"image": "no base64!"}), as_json, 400),
        (json.dumps({"image": 3}), as_json, 400),
        (json.dumps({"images": "abc"}), as_json, 400),
        (json.dumps({"images": []}), as_json, 400),
        (json.dumps({}), as_json, 400),
        (json.dumps({"images": [""] * 1000}), as_json, 413),
        (form([(str(number), b"x") for number in range(1000)])[0], kind, 413),
    ]
    for number, (content, headers, status) in enumerate(asked):
        answer = own_server.ask("POST", "/predict", content, headers)
        assert (number, answer.status) == (number, status), answer.body
        assert answer.json()["error"]
    assert own_server.post("/predict", picture(0)).status == 200


def test_a_slow_upload_is_ended(small_model: Path) -> None:
    with Served(small_model, ["--deadline-s", "1"]) as server:
        connection = server.connect()
        connection.putrequest("POST", "/predict")
        connection.putheader("Content-Type", "image/png")
        connection.putheader("Content-Length", "1000")
        connection.endheaders()
        connection.send(b"x")
        assert read(connection).status == 408
        connection.close()
        assert server.counted("vitscope_pictures_in_work") == 0
        assert server.post("/predict", picture(0)).status == 200


def test_a_large_picture_that_is_allowed_is_explained_in_little(own_server: Served) -> None:
    answer = own_server.post("/explain", encoded(Image.new("RGB", (4000, 3000)), "JPEG"))
    drawn = Image.open(io.BytesIO(answer.body))
    assert drawn.width * drawn.height <= 4_100_000
    assert drawn.width / drawn.height == pytest.approx(4 / 3, abs=0.01)
