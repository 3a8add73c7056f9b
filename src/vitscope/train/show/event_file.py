"""A file of TensorBoard events: records of a length, its checksum, the bytes and theirs (TFRecord).

TensorBoard's own writer computes checksums byte by byte in Python, in a thread that competes with the training loop.
Here they are computed for many records together, without a thread, and a full disk is known at once.
"""

from __future__ import annotations

import os
import struct
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

PREFIX = "events.out.tfevents."
MOST_WAITING = 4096
"""Records kept back before they are written."""


class EventFile:
    """A new file in `folder`, behind those already there: TensorBoard reads them in the order of their names."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        number = max(int(time.time()), max(map(_number, folder.glob(f"{PREFIX}*")), default=0) + 1)
        self.path = folder / f"{PREFIX}{number:010d}.{os.getpid()}"
        self._file = self.path.open("xb", buffering=0)  # what cannot be written must not be tried again at the end
        self._waiting: list[bytes] = []

    def add(self, event: bytes) -> None:
        self._waiting.append(event)
        if len(self._waiting) >= MOST_WAITING:
            self.flush()

    def flush(self) -> None:
        events, self._waiting = self._waiting, []
        lengths = [struct.pack("<Q", len(event)) for event in events]
        parts = zip(lengths, checksums(lengths), events, checksums(events), strict=True)
        content = b"".join(part for record in parts for part in record)
        if content and self._file.write(content) != len(content):
            raise OSError(f"only a part of {len(content)} bytes was taken by {self.path}")

    def close(self) -> None:
        try:
            self.flush()
        finally:
            self._file.close()


def _number(path: Path) -> int:
    digits = path.name.removeprefix(PREFIX).partition(".")[0]
    return int(digits) if digits.isdigit() else 0


def checksums(contents: Sequence[bytes]) -> list[bytes]:
    """CRC-32C of each, turned and shifted as TFRecord wants it; those of one length together."""
    found = [b""] * len(contents)
    places = defaultdict[int, list[int]](list)
    for place, content in enumerate(contents):
        places[len(content)].append(place)
    for length, alike in places.items():
        columns = np.frombuffer(b"".join(contents[place] for place in alike), np.uint8).reshape(len(alike), length).T
        crc = np.full(len(alike), 0xFFFFFFFF, np.uint32)
        for column in columns:
            crc = _TABLE[crc.astype(np.uint8) ^ column] ^ (crc >> 8)
        crc ^= 0xFFFFFFFF
        turned = ((crc >> 15) | (crc << 17)) + np.uint32(0xA282EAD8)  # wraps around
        for place, value in zip(alike, turned.tolist(), strict=True):
            found[place] = struct.pack("<I", value)
    return found


def _entry(index: int) -> int:
    for _ in range(8):
        index = (index >> 1) ^ (0x82F63B78 if index & 1 else 0)  # Castagnoli's polynomial, bits reversed
    return index


_TABLE = np.array([_entry(index) for index in range(256)], np.uint32)
