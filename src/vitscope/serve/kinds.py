"""Which kinds of picture a server decodes, told by their first bytes.

Pillow knows dozens of formats, some of them programs of their own (EPS is run by Ghostscript). What strangers send is
decoded only where it is one of those that people's pictures have.
"""

from __future__ import annotations

import re

# All of them from the first byte on, so that nothing can begin as another kind does and still be let in.
KNOWN = re.compile(
    rb"\xff\xd8\xff"  # JPEG
    rb"|\x89PNG\r\n\x1a\n"
    rb"|GIF8[79]a"
    rb"|RIFF....WEBP"
    rb"|\0\0\0.ftypavi[fs]"
    rb"|BM"
    rb"|II\*\0|MM\0\*"  # TIFF, in both orders of bytes
    rb"|P[56]\s",  # PGM and PPM
    re.DOTALL,
)
NAMES = "JPEG, PNG, GIF, WebP, AVIF, BMP, TIFF or PPM"


def is_known(content: bytes | memoryview) -> bool:
    return KNOWN.match(bytes(content[:16])) is not None
