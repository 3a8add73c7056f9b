"""Where the bytes of an archive's entry lie, so that they can be read straight to their place."""

from __future__ import annotations

import struct
import zipfile

from vitscope.weights.opened import OpenFile

LENGTHS = 26
"""Where an entry's own header, of 30 bytes, tells how long its name and its extra field are."""


def begins(opened: OpenFile, entry: zipfile.ZipInfo) -> int:
    """Where the bytes of an entry that is not compressed begin in the file."""
    lengths = struct.unpack("<HH", opened.read_at(entry.header_offset + LENGTHS, 4))
    return entry.header_offset + 30 + sum(lengths)
