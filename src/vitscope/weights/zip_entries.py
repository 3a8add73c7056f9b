"""Where the bytes of an archive's entry lie, so that they can be read straight to their place."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Callable

LENGTHS = 26
"""Where an entry's own header, of 30 bytes, tells how long its name and its extra field are."""


def begins(read_at: Callable[[int, int], bytes], entry: zipfile.ZipInfo) -> int:
    """Where the bytes of an entry that is not compressed begin. `read_at` is place, count -> bytes of the file."""
    lengths = struct.unpack("<HH", read_at(entry.header_offset + LENGTHS, 4))
    return entry.header_offset + 30 + sum(lengths)
