"""decode_image: everything that calls itself a picture becomes RGB or grey, or a reason."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from vitscope.core.errors import DataError
from vitscope.data.decode import UPRIGHT, BadImageError, bad_image, decode_image, decode_with_remarks
from vitscope.data.photographs import builtin_picture

RNG = np.random.default_rng(0)


def encoded(picture: Image.Image, kind: str = "PNG", **settings: Any) -> bytes:
    file = io.BytesIO()
    picture.save(file, kind, **settings)
    return file.getvalue()


def noise(height: int = 9, width: int = 14, channels: int = 3) -> np.ndarray:
    shape = (height, width) if channels == 1 else (height, width, channels)
    return RNG.integers(0, 256, shape, dtype=np.uint8)


def test_plain_pixels_come_through_unchanged() -> None:
    pixels = noise()
    for content in (
        pixels,
        Image.fromarray(pixels),
        encoded(Image.fromarray(pixels)),
        bytearray(encoded(Image.fromarray(pixels))),
    ):
        decoded = decode_image(content)
        assert decoded.mode == "RGB"
        np.testing.assert_array_equal(np.asarray(decoded), pixels)


def test_path_and_open_file(tmp_path: Path) -> None:
    pixels = noise()
    path = tmp_path / "picture.png"
    path.write_bytes(encoded(Image.fromarray(pixels)))
    with path.open("rb") as file:
        for content in (path, str(path), file):
            np.testing.assert_array_equal(np.asarray(decode_image(content)), pixels)


def test_a_jpeg_is_what_pillow_decodes() -> None:
    content = encoded(builtin_picture("china"), "JPEG", quality=90)
    np.testing.assert_array_equal(np.asarray(decode_image(content)), np.asarray(Image.open(io.BytesIO(content))))


def test_the_picture_given_is_not_changed() -> None:
    for given in (Image.fromarray(noise()), Image.open(io.BytesIO(encoded(Image.fromarray(noise()))))):
        decode_image(given).putpixel((0, 0), (1, 2, 3))
        assert given.getpixel((0, 0)) != (1, 2, 3)


def test_grey_and_colour_on_request() -> None:
    grey = Image.fromarray(noise(channels=1))
    assert decode_image(grey, in_chans=1).mode == "L"
    assert decode_image(grey).mode == "RGB"
    colour = Image.fromarray(noise())
    np.testing.assert_array_equal(np.asarray(decode_image(colour, in_chans=1)), np.asarray(colour.convert("L")))
    with pytest.raises(DataError, match=r"1 \(grey\) or 3 \(RGB\)"):
        decode_image(grey, in_chans=4)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "WEBP"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied(orientation: int, kind: str) -> None:
    """The picture is stored turned the other way, and its EXIF says how to turn it back."""
    upright = Image.fromarray(np.kron(noise(4, 6), np.ones((8, 8, 1), dtype=np.uint8)))
    inverse = {6: UPRIGHT[8], 8: UPRIGHT[6]}
    stored = upright.transpose(inverse.get(orientation, UPRIGHT[orientation])) if orientation > 1 else upright
    exif = Image.Exif()
    exif[0x0112] = orientation
    settings = {"quality": 100, "subsampling": 0} if kind == "JPEG" else {"lossless": True} if kind == "WEBP" else {}
    decoded = decode_with_remarks(encoded(stored, kind, exif=exif, **settings))
    assert decoded.size == (32, 48)
    off = np.abs(np.asarray(decoded.picture, dtype=int) - np.asarray(upright, dtype=int)).max()
    assert off <= (8 if kind == "JPEG" else 0)
    assert decode_image(decoded.picture).tobytes() == decoded.picture.tobytes()  # and is not applied again
    assert [remark for remark in decoded.remarks if "orientation" in remark] == (
        [f"EXIF orientation {orientation}: turned upright"] if orientation > 1 and kind != "TIFF" else []
    )


@pytest.mark.parametrize("value", [0, 9, 77])
def test_senseless_orientation_is_said_and_ignored(value: int) -> None:
    pixels = noise()
    exif = Image.Exif()
    exif[0x0112] = value
    decoded = decode_with_remarks(encoded(Image.fromarray(pixels), "PNG", exif=exif))
    np.testing.assert_array_equal(np.asarray(decoded.picture), pixels)
    assert decoded.remarks == [f"EXIF orientation {value} means nothing: taken as it lies"]


@pytest.mark.parametrize(
    "body", [b"Exif\x00\x00II*\x00\xff\xff\xff\x7fgarbage", b"Exif\x00\x00garbage!", b"Exif\x00\x00"]
)
def test_damaged_exif_does_not_lose_the_picture(body: bytes) -> None:
    content = encoded(Image.fromarray(noise(32, 32)), "JPEG")
    damaged = content[:2] + b"\xff\xe1" + (len(body) + 2).to_bytes(2, "big") + body + content[2:]
    decoded = decode_with_remarks(damaged)
    np.testing.assert_array_equal(np.asarray(decoded.picture), np.asarray(Image.open(io.BytesIO(content))))
    assert any("EXIF" in remark for remark in decoded.remarks)


def test_transparency_is_laid_on_white() -> None:
    pixels = np.zeros((1, 3, 4), dtype=np.uint8)
    pixels[0, :, 3] = (0, 255, 51)  # black: unseen, opaque, one fifth
    decoded = decode_with_remarks(encoded(Image.fromarray(pixels)))
    assert np.asarray(decoded.picture)[0, :, 0].tolist() == [255, 0, 204]
    assert decoded.remarks[0] == "transparency (RGBA): laid on white"
    np.testing.assert_array_equal(np.asarray(decode_image(pixels)), np.asarray(decoded.picture))


def test_transparency_of_palettes_grey_and_one_colour() -> None:
    palette = Image.new("P", (2, 1))
    palette.putpalette([10, 20, 30, 200, 100, 50])
    palette.putdata([0, 1])
    assert np.asarray(decode_image(encoded(palette))).tolist() == [[[10, 20, 30], [200, 100, 50]]]
    assert np.asarray(decode_image(encoded(palette, transparency=0))).tolist() == [[[255] * 3, [200, 100, 50]]]
    assert np.asarray(decode_image(encoded(palette, transparency=bytes([255, 0])))).tolist() == [
        [[10, 20, 30], [255] * 3]
    ]
    grey = Image.fromarray(np.array([[7, 9]], dtype=np.uint8))
    assert np.asarray(decode_image(encoded(grey, transparency=9), in_chans=1)).tolist() == [[7, 255]]
    both = Image.merge("LA", [grey, Image.fromarray(np.array([[255, 0]], dtype=np.uint8))])
    assert np.asarray(decode_image(encoded(both), in_chans=1)).tolist() == [[7, 255]]
    keyed = Image.fromarray(np.array([[[1, 2, 3], [4, 5, 6]]], dtype=np.uint8))
    assert np.asarray(decode_image(encoded(keyed, transparency=(1, 2, 3)))).tolist() == [[[255] * 3, [4, 5, 6]]]


def test_16_bits_are_scaled_not_clipped() -> None:
    ramp = np.arange(65536, dtype=np.uint16).reshape(256, 256)
    for content in (encoded(Image.fromarray(ramp)), encoded(Image.fromarray(ramp), "TIFF"), ramp):
        grey = np.asarray(decode_image(content, in_chans=1))
        np.testing.assert_array_equal(grey, np.rint(ramp / 257).astype(np.uint8))
        assert len(np.unique(grey)) == 256


def test_float_and_32_bit_tiffs() -> None:
    ramp = np.linspace(0, 1, 256, dtype=np.float32).reshape(16, 16)
    for scale, expected in ((1.0, 255), (255.0, 255), (1000.0, 4)):
        grey = np.asarray(decode_image(encoded(Image.fromarray(ramp * scale), "TIFF"), in_chans=1))
        assert grey.max() == expected
        assert grey.min() == 0
    signed = np.asarray(decode_image(encoded(Image.fromarray(ramp * 2 - 1), "TIFF"), in_chans=1))
    np.testing.assert_allclose(signed, ramp * 255, atol=0.51)
    counted = (ramp * 70000).astype(np.int32)
    assert np.asarray(decode_image(encoded(Image.fromarray(counted), "TIFF"), in_chans=1)).max() == 255
    ramp[3, 3] = np.nan
    with pytest.raises(BadImageError, match="not finite"):
        decode_image(encoded(Image.fromarray(ramp), "TIFF"))


def test_cmyk_one_bit_and_other_modes() -> None:
    red = Image.new("RGB", (16, 16), (255, 0, 0))
    decoded = decode_with_remarks(encoded(red.convert("CMYK"), "JPEG", quality=100))
    assert decoded.mode == "CMYK"
    assert decoded.remarks == ["CMYK: turned into RGB"]
    r, g, b = np.asarray(decoded.picture, dtype=int).mean((0, 1))
    assert (r, g, b) == pytest.approx((255, 0, 0), abs=6)
    bits = Image.fromarray(np.array([[True, False]]))
    assert np.asarray(decode_image(encoded(bits), in_chans=1)).tolist() == [[255, 0]]


def test_of_an_animation_the_first_frame() -> None:
    frames = [Image.new("RGB", (5, 4), colour) for colour in ("red", "lime", "blue")]
    for kind in ("GIF", "PNG", "WEBP"):
        settings = {"lossless": True} if kind == "WEBP" else {}
        content = encoded(frames[0], kind, save_all=True, append_images=frames[1:], **settings)
        decoded = decode_with_remarks(content)
        assert np.asarray(decoded.picture)[0, 0].tolist() == [255, 0, 0]
        assert "animated: the first frame is used" in decoded.remarks
    shown = Image.open(io.BytesIO(content))
    shown.seek(2)
    assert np.asarray(decode_image(shown))[0, 0].tolist() == [255, 0, 0]
    assert shown.tell() == 2


def test_too_many_pixels_are_refused_before_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    content = encoded(Image.new("L", (400, 300)))
    monkeypatch.setattr(Image.Image, "load", lambda self: pytest.fail("was decoded"))
    with pytest.raises(BadImageError, match=r"400 x 300 = 120,000 pixels, more than 100,000"):
        decode_image(content, pixel_limit=100_000)
    with pytest.raises(BadImageError, match="more than 100,000"):
        decode_image(np.zeros((400, 300), dtype=np.uint8), pixel_limit=100_000)


@pytest.mark.parametrize("side", [12_000, 15_000])
def test_a_bomb_is_a_bad_picture_unless_allowed(side: int) -> None:
    """Pillow warns of the first size and refuses the second by itself; here our limit alone counts."""
    content = encoded(Image.new("1", (side, side)), "PNG")
    assert len(content) < 200_000
    limit = Image.MAX_IMAGE_PIXELS
    with pytest.raises(BadImageError, match=f"= {side * side:,} pixels, more than 89,478,485"):
        decode_image(content)
    assert decode_image(content, in_chans=1, pixel_limit=side * side).size == (side, side)
    assert limit == Image.MAX_IMAGE_PIXELS


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "an empty file"),
        (b"hello, I am a text", "not a picture"),
        (np.zeros((0, 4), dtype=np.uint8), "without pixels"),
        (np.zeros((4, 4, 2), dtype=np.uint8), "1, 3 or 4 channels"),
        (np.zeros((2, 4, 4, 3), dtype=np.uint8), "1, 3 or 4 channels"),
        (np.zeros((4, 4), dtype=complex), "numbers"),
        (np.full((4, 4), np.inf), "not finite"),
        (np.array([["a"]]), "numbers"),
        ("/no/such/picture.jpg", "missing"),
        (object(), "read"),
    ],
)
def test_what_is_no_picture_gets_a_reason(content: Any, reason: str) -> None:
    with pytest.raises(BadImageError, match=reason):
        decode_image(content)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "WEBP", "TIFF", "BMP"])
def test_truncated_files_are_bad_wherever_they_end(kind: str) -> None:
    content = encoded(builtin_picture("flower").resize((64, 48)), kind)
    for share in (0.02, 0.3, 0.6, 0.9):
        cut = content[: int(len(content) * share)]
        with pytest.raises(BadImageError):
            decode_image(cut)


def test_random_damage_never_raises_anything_else() -> None:
    """A thousand damaged files: each is a picture or a BadImageError."""
    pictures = [
        encoded(builtin_picture("china").resize((40, 30)), kind) for kind in ("JPEG", "PNG", "GIF", "TIFF", "WEBP")
    ]
    outcomes = {"decoded": 0, "bad": 0}
    for trial in range(1000):
        content = bytearray(pictures[trial % len(pictures)])
        for place in RNG.integers(0, len(content), 1 + trial % 7):
            content[place] = RNG.integers(0, 256)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                assert decode_image(bytes(content)).mode == "RGB"
                outcomes["decoded"] += 1
            except BadImageError:
                outcomes["bad"] += 1
    assert min(outcomes.values()) > 50


def test_the_place_is_told(tmp_path: Path) -> None:
    path = tmp_path / "broken.jpg"
    path.write_bytes(b"nothing")
    with pytest.raises(BadImageError) as caught:
        decode_image(path)
    assert caught.value.where == str(path)
    assert bad_image(caught.value, where="elsewhere").where == "elsewhere"
    assert bad_image(PermissionError(13, "x")).what == "no permission to read the file"


def test_tiny_and_very_long() -> None:
    assert decode_with_remarks(np.zeros((1, 1, 3), dtype=np.uint8)).size == (1, 1)
    long = decode_with_remarks(encoded(Image.new("RGB", (20_000, 1), "red")))
    assert long.size == (1, 20_000)
    assert long.remarks == ["only 20000 x 1 pixels"]
