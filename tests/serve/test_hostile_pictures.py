"""Pictures made to keep a server busy: refused early, and nobody waits for another's."""

from __future__ import annotations

import io
import struct
import threading
import tracemalloc
import warnings
import zlib

import numpy as np
import pytest
from PIL import Image

from serving import encoded, picture
from vitscope.data import decode
from vitscope.data.decode import BadImageError, decode_image, stored_size

HEAD = 33
"""Bytes of a PNG up to the end of IHDR."""


def chunk(kind: bytes, content: bytes = b"") -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def with_chunks(count: int) -> bytes:
    content = picture(0)
    return content[:HEAD] + chunk(b"aaAa") * count + content[HEAD:]


def in_pieces(count: int) -> bytes:
    """A PNG whose pixels come a byte at a time, with empty pieces between."""
    content = picture(0)
    start = content.index(b"IDAT") - 4
    return content[:start] + chunk(b"IDAT") * count + content[start:]


class Slow(io.BytesIO):
    """A file that is not there yet."""

    def __init__(self, content: bytes) -> None:
        super().__init__(content)
        self.asked, self.here = threading.Event(), threading.Event()

    def read(self, size: int | None = -1, /) -> bytes:
        self.asked.set()
        assert self.here.wait(60)
        return super().read(size)


def test_nobody_waits_for_a_picture_that_another_thread_opens() -> None:
    slow, found = Slow(picture(1)), []
    other = threading.Thread(target=lambda: found.append(decode_image(slow)))
    other.start()
    assert slow.asked.wait(60)
    mine = threading.Thread(target=lambda: found.append(decode_image(picture(0))))
    mine.start()
    mine.join(20)
    waited = mine.is_alive()
    slow.here.set()
    other.join()
    mine.join()
    assert not waited
    assert [one.tobytes() for one in found] == [decode_image(picture(0)).tobytes(), decode_image(picture(1)).tobytes()]


def test_the_process_is_as_it_was_afterwards() -> None:
    before = (list(warnings.filters), warnings.showwarning, Image.MAX_IMAGE_PIXELS)
    threads = [threading.Thread(target=decode_image, args=(picture(number),)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (list(warnings.filters), warnings.showwarning, Image.MAX_IMAGE_PIXELS) == before


@pytest.mark.parametrize(
    "content",
    [
        with_chunks(60_000),
        in_pieces(60_000),
        b"\xff\xd8" + b"\xff" * 300_000 + picture(0, file_format="JPEG")[2:],
        b"\xff\xd8" + b"\xff\xfe\0\2" * 60_000 + picture(0, file_format="JPEG")[2:],
    ],
    ids=["png chunks", "png pixels", "jpeg filling", "jpeg comments"],
)
def test_a_file_in_millions_of_pieces_is_not_read_to_its_end(content: bytes) -> None:
    with pytest.raises(BadImageError, match="more pieces than any picture has"):
        decode_image(content)


def test_many_pieces_that_a_picture_may_have_are_read() -> None:
    assert decode_image(with_chunks(10_000)).tobytes() == decode_image(picture(0)).tobytes()
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (1500, 2000), dtype=np.uint8))
    content = encoded(noise, "GIF")  # some 13,000 blocks of 255 bytes
    assert decode_image(content, in_chans=1).size == noise.size
    assert stored_size(content) == (1500, 2000)


def test_transparency_and_deep_values_are_worked_on_in_strips(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    clear = [
        Image.fromarray(rng.integers(0, 256, (50, 40, 4), dtype=np.uint8)),
        Image.fromarray(rng.integers(0, 256, (50, 40, 2), dtype=np.uint8), "LA"),
    ]
    deep = [rng.integers(0, 65536, (50, 40), dtype=np.uint16), rng.normal(size=(50, 40)).astype(np.float32)]
    whole = [decode_image(content).tobytes() for content in (*clear, *deep)]
    compose, sizes = Image.alpha_composite, []

    def seen(sheet: Image.Image, layer: Image.Image) -> Image.Image:
        sizes.append(layer.width * layer.height)
        return compose(sheet, layer)

    monkeypatch.setattr(Image, "alpha_composite", seen)
    monkeypatch.setattr(decode, "STRIP_PIXELS", 300, raising=False)
    assert [decode_image(content).tobytes() for content in (*clear, *deep)] == whole
    assert max(sizes) <= 300


def test_deep_values_take_little_more_than_the_picture() -> None:
    values = np.zeros((3000, 3000), np.uint16)
    tracemalloc.start()
    try:
        decode_image(values)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 6 * values.size
