"""One picture as cameras store it in the eight orientations of EXIF."""

from __future__ import annotations

import io

from PIL import Image
from PIL.Image import Transpose

ORIENTATION = 0x0112
# How a camera held that way stores the picture: the inverse of what turns it upright.
STORED = {
    1: None,
    2: Transpose.FLIP_LEFT_RIGHT,
    3: Transpose.ROTATE_180,
    4: Transpose.FLIP_TOP_BOTTOM,
    5: Transpose.TRANSPOSE,
    6: Transpose.ROTATE_90,
    7: Transpose.TRANSVERSE,
    8: Transpose.ROTATE_270,
}


def turned(upright: Image.Image, file_format: str) -> list[bytes]:
    """Eight files of one picture, as TIFF or PNG (a JPEG's losses depend on how it lies)."""
    files = []
    for orientation, turn in STORED.items():
        exif, file = Image.Exif(), io.BytesIO()
        exif[ORIENTATION] = orientation
        (upright if turn is None else upright.transpose(turn)).save(file, file_format, exif=exif)
        files.append(file.getvalue())
    return files
