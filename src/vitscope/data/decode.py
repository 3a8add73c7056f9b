"""One way from anything to a picture, for training, prediction and serving alike.

EXIF orientation is applied, transparency is laid on white, 16-bit and float values are scaled, CMYK, palettes and the
rest become RGB (or grey), of an animation the first frame counts. The number of pixels is checked before they are
decoded. What cannot be decoded raises BadImageError, whatever went wrong inside; files are only ever read.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np
from PIL import Image, UnidentifiedImageError
from PIL.Image import Transpose

from vitscope.core.errors import DataError, expected
from vitscope.data.config.data import PIXEL_LIMIT
from vitscope.data.opening import LimitedFile, pillow_quiet

Content = bytes | bytearray | memoryview | str | Path | BinaryIO | Image.Image | np.ndarray
"""An encoded file's bytes, its path or an open file; a picture; or pixels (H, W) or (H, W, C)."""

BACKGROUND = (255, 255, 255)
"""What shows through transparent pixels."""
STRIP_PIXELS = 1_000_000
"""What is worked on at a time where it takes many bytes a pixel."""
WITH_ALPHA = ("RGBA", "LA", "PA", "La", "RGBa")
ANIMATED = "animated: the first frame is used"
ORIENTATION_TAG = 0x0112
EXIF_BEGINNINGS = (b"II*\0", b"MM\0*")
UPRIGHT = {
    2: Transpose.FLIP_LEFT_RIGHT,
    3: Transpose.ROTATE_180,
    4: Transpose.FLIP_TOP_BOTTOM,
    5: Transpose.TRANSPOSE,
    6: Transpose.ROTATE_270,
    7: Transpose.TRANSVERSE,
    8: Transpose.ROTATE_90,
}
"""EXIF orientation -> what turns the picture upright."""
ON_ITS_SIDE = (5, 6, 7, 8)
"""EXIF orientations that exchange height and width."""


class BadImageError(DataError):
    """A picture that cannot be decoded. `what` is the reason, `where` the picture."""


class TooManyPixelsError(BadImageError):
    """A picture larger than is allowed."""


class NoRoomError(BadImageError):
    """A picture there was no memory for: it may be sound."""


@dataclass
class Decoded:
    """A picture as a model may have it, and what it was before."""

    picture: Image.Image
    """Upright, in mode RGB or L."""
    format: str | None
    """JPEG, PNG, ...; None for pixels that came from no file."""
    mode: str
    """Pillow's mode before: RGB, CMYK, P, I;16, ..."""
    size: tuple[int, int]
    """(height, width), upright."""
    remarks: list[str] = field(default_factory=list)
    """What was unusual and how it was treated."""


def decode_image(content: Content, *, in_chans: int = 3, pixel_limit: int = PIXEL_LIMIT) -> Image.Image:
    """The picture, upright, as RGB (`in_chans` 3) or grey (1). Raises BadImageError."""
    return decode_with_remarks(content, in_chans=in_chans, pixel_limit=pixel_limit).picture


def decode_with_remarks(content: Content, *, in_chans: int = 3, pixel_limit: int = PIXEL_LIMIT) -> Decoded:
    """`decode_image`, and what was found on the way."""
    if in_chans not in (1, 3):
        raise DataError(expected("in_chans", "1 (grey) or 3 (RGB) for pictures", in_chans))
    where = str(content) if isinstance(content, str | Path) else None
    try:
        if isinstance(content, np.ndarray):
            return _decode_pixels(content, in_chans, pixel_limit)
        if isinstance(content, Image.Image):
            return _decode_given(content, in_chans, pixel_limit)
        if isinstance(content, bytes | bytearray | memoryview):
            _refuse_empty(len(content))
            content = _as_file(content)
        elif isinstance(content, str | Path):
            _refuse_empty(Path(content).stat().st_size)
        with pillow_quiet() as told:
            opened = Image.open(content)
        with opened:
            decoded = _decode_opened(opened, in_chans, pixel_limit)
        decoded.remarks.extend(dict.fromkeys(told))
        return decoded
    except Exception as error:  # Pillow's plugins raise whatever their parsers raise
        raise bad_image(error, where=where or _name_of(content)) from None


def stored_size(content: bytes | memoryview | np.ndarray | Exception) -> tuple[int, int]:
    """(height, width) a stored picture will have when it is decoded. Reads its header only; fails as that fails."""
    if isinstance(content, Exception):
        raise content
    if isinstance(content, np.ndarray):
        return content.shape[0], content.shape[1]
    with pillow_quiet(), Image.open(_as_file(content)) as opened:
        turned = "exif" in opened.info and opened.getexif().get(ORIENTATION_TAG, 1) in ON_ITS_SIDE
        return (opened.width, opened.height) if turned else (opened.height, opened.width)


def stored_pixels(content: bytes | memoryview, *, pixel_limit: int = PIXEL_LIMIT) -> int:
    """How many a stored picture has, by its head alone; refused as decoding it would be. Raises BadImageError."""
    try:
        with pillow_quiet(), Image.open(_as_file(content)) as opened:
            _refuse_size(opened.width, opened.height, pixel_limit)
            return opened.width * opened.height
    except Exception as error:  # Pillow's plugins raise whatever their parsers raise
        raise bad_image(error) from None


def is_passing(error: Exception) -> bool:
    """Whether the failure may pass by itself: the picture may be sound where memory, disk or network were not."""
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno is not None)


def bad_image(error: Exception, *, where: str | None = None) -> BadImageError:
    """Any failure to read or decode, as a reason a person understands."""
    if isinstance(error, BadImageError):
        return type(error)(error.what, where=where or error.where)
    kind = NoRoomError if isinstance(error, MemoryError) else BadImageError
    return kind(_reason(error), where=where)


def _reason(error: Exception) -> str:
    match error:
        case UnidentifiedImageError():
            return "not a picture in any known format"
        case FileNotFoundError():
            return "the file is missing"
        case PermissionError():
            return "no permission to read the file"
        case IsADirectoryError():
            return "a folder, not a picture"
        case MemoryError():
            return "not enough memory to decode it"
        case OSError() if error.errno is not None:
            return os.strerror(error.errno)
    return (str(error).splitlines() or [""])[0][:200] or type(error).__name__


def _name_of(content: object) -> str | None:
    name = getattr(content, "name", None)
    return name if isinstance(name, str) else None


def _decode_given(picture: Image.Image, in_chans: int, pixel_limit: int) -> Decoded:
    """Somebody's picture: looked at and copied, left as it was."""
    _refuse_size(picture.width, picture.height, pixel_limit)
    animated = getattr(picture, "is_animated", False)
    frame = picture.tell() if animated else 0
    if frame:
        picture.seek(0)
    own = picture.copy()
    decoded = _decode_opened(own, in_chans, pixel_limit)
    decoded.format = picture.format
    if animated:
        decoded.remarks.insert(0, ANIMATED)
    if frame:
        picture.seek(frame)
    return decoded


def _decode_opened(opened: Image.Image, in_chans: int, pixel_limit: int) -> Decoded:
    _refuse_size(opened.width, opened.height, pixel_limit)
    found = Decoded(opened, opened.format, opened.mode, (opened.height, opened.width))
    # A phone's MPO holds a preview beside the photograph, which makes it no film.
    if opened.format != "MPO" and getattr(opened, "is_animated", False):
        found.remarks.append(ANIMATED)
    target = "L" if in_chans == 1 else "RGB"
    opened.load()
    plain = opened.mode == target and "transparency" not in opened.info
    found.picture = _upright(opened, opened if plain else _in_colours(opened, target, found.remarks), found.remarks)
    found.size = (found.picture.height, found.picture.width)
    if min(found.size) == 1:
        found.remarks.append(f"only {found.picture.width} x {found.picture.height} pixels")
    return found


def _decode_pixels(pixels: np.ndarray, in_chans: int, pixel_limit: int) -> Decoded:
    if pixels.ndim not in (2, 3) or (pixels.ndim == 3 and pixels.shape[2] not in (1, 3, 4)):
        shape = "x".join(map(str, pixels.shape))
        raise BadImageError(expected("pixels", "(H, W), or (H, W, C) with 1, 3 or 4 channels", shape))
    if min(pixels.shape) == 0:
        raise BadImageError("a picture without pixels")
    _refuse_size(pixels.shape[1], pixels.shape[0], pixel_limit)
    remarks: list[str] = []
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[:, :, 0]
    mode = {2: "L", 3: "RGB"}[pixels.ndim]
    if pixels.dtype != np.uint8:
        pixels = _as_bytes(pixels, str(pixels.dtype), remarks)
    picture = Image.fromarray(np.ascontiguousarray(pixels))
    mode = picture.mode
    target = "L" if in_chans == 1 else "RGB"
    if picture.mode != target:
        picture = _in_colours(picture, target, remarks)
    return Decoded(picture, None, mode, (picture.height, picture.width), remarks)


def _as_file(content: bytes | bytearray | memoryview) -> LimitedFile:
    return LimitedFile(content, BadImageError("a file of more pieces than any picture has"))


def _refuse_empty(size_bytes: int) -> None:
    if not size_bytes:
        raise BadImageError("an empty file (0 bytes)")


def _refuse_size(width: int, height: int, pixel_limit: int) -> None:
    if width < 1 or height < 1:
        raise BadImageError("a picture without pixels")
    if width * height > pixel_limit:
        raise TooManyPixelsError(f"{width} x {height} = {width * height:,} pixels, more than {pixel_limit:,}")


def _in_colours(picture: Image.Image, target: str, remarks: list[str]) -> Image.Image:
    """Any mode as RGB or L, nothing clipped."""
    mode = picture.mode
    if mode.startswith("I") or mode == "F":
        depth = {"I": "32-bit", "F": "float"}.get(mode, "16-bit")
        scaled = _as_bytes(np.asarray(picture), depth, remarks)
        return Image.fromarray(scaled).convert(target)
    if mode in WITH_ALPHA or "transparency" in picture.info:
        remarks.append(f"transparency ({mode}): laid on white")
        return _on_white(picture, target)
    if mode not in ("RGB", "L", "1"):
        remarks.append({"P": "palette"}.get(mode, mode) + f": turned into {'grey' if target == 'L' else 'RGB'}")
    return picture.convert(target)


def _on_white(picture: Image.Image, target: str) -> Image.Image:
    """In strips, as the whole in RGBA three times over would be most of the memory a large picture takes."""
    laid = Image.new(target, picture.size)
    height = max(1, STRIP_PIXELS // picture.width)
    for top in range(0, picture.height, height):
        strip = picture.crop((0, top, picture.width, min(top + height, picture.height)))
        layer = strip.convert("RGBA")
        sheet = Image.new("RGBA", layer.size, (*BACKGROUND, 255))
        laid.paste(Image.alpha_composite(sheet, layer).convert(target), (0, top))
    return laid


def _as_bytes(values: np.ndarray, depth: str, remarks: list[str]) -> np.ndarray:
    """Deeper values on the scale of bytes. 16 bits have a known range; others tell theirs by what they hold."""
    if values.dtype == np.bool_:
        return values.astype(np.uint8) * 255
    if not np.issubdtype(values.dtype, np.number) or np.iscomplexobj(values):
        raise BadImageError(expected("pixels", "numbers", str(values.dtype)))
    low, high = float(values.min()), float(values.max())  # not a number, if one of them is none
    if not (math.isfinite(low) and math.isfinite(high)):
        raise BadImageError(f"{depth} values that are not finite")
    is_float = np.issubdtype(values.dtype, np.floating)
    if values.dtype.itemsize == 2 and low >= 0 and not is_float:
        bottom, top = 0.0, 65535.0
    elif low >= 0 and high <= 1 and is_float:
        bottom, top = 0.0, 1.0
    elif low >= 0 and high <= 255:
        bottom, top = 0.0, 255.0
    elif low >= 0 and high <= 65535:
        bottom, top = 0.0, 65535.0
    else:
        bottom, top = low, high
    remarks.append(f"{depth} values: {bottom:g} to {top:g} scaled to 0 to 255")
    scaled = np.empty(values.shape, np.uint8)
    height = max(1, STRIP_PIXELS // max(1, values[0].size))
    for start in range(0, len(values), height):  # in strips: whole, the wide numbers would be eight times the picture
        wide = values[start : start + height].astype(np.float64)
        scaled[start : start + height] = np.rint((wide - bottom) * (255.0 / (top - bottom)))
    return scaled


def _upright(opened: Image.Image, picture: Image.Image, remarks: list[str]) -> Image.Image:
    """Turned as its EXIF says. Most pictures have none, and pay nothing."""
    if "exif" not in opened.info:  # a TIFF has none there: Pillow turns it by itself
        return picture
    try:
        with pillow_quiet() as told:
            exif = opened.getexif()
            orientation = exif.get(ORIENTATION_TAG, 1)
        remarks.extend(dict.fromkeys(told))
        if opened.info["exif"].removeprefix(b"Exif\0\0")[:4] not in EXIF_BEGINNINGS:
            remarks.append("EXIF cannot be read: taken as it lies")  # Pillow says nothing
    except Exception as error:  # damaged EXIF is no reason to lose a good picture
        remarks.append(f"EXIF cannot be read ({_reason(error)}): taken as it lies")
        return picture
    if orientation in UPRIGHT:
        remarks.append(f"EXIF orientation {orientation}: turned upright")
        turned = picture.transpose(UPRIGHT[orientation])
        turned.info.pop("exif", None)  # whoever reads it again would turn the picture once more
        return turned
    if orientation != 1:
        remarks.append(f"EXIF orientation {orientation!r} means nothing: taken as it lies")
    return picture
