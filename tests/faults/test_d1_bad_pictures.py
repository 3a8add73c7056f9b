"""D1: pictures that are damaged, strange or no pictures. Training leaves the undecodable out, says which and why, shows
the others, stops when they are many, and never touches a file. (`vitscope data` lists them: its own tests.)"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageSequence

from vitscope.core.errors import DataError
from vitscope.data.config import AugmentConfig, DataConfig, augmentation, half_normalised
from vitscope.data.decode import decode_image
from vitscope.data.loaders.loader import BadSample, Batch
from vitscope.data.loaders.worker import WorkerLoader
from vitscope.data.preprocess import preprocess
from vitscope.data.sources.folder import ImageFolder
from vitscope.data.transforms.batch import BatchTransform

CONFIG = half_normalised((16, 16), 3)
SOUND = 39
"""With the rest, whole batches."""
LOOP = "self.jpg"


def noise(width: int = 40, height: int = 30) -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8))


def encoded(picture: Image.Image, file_format: str, **options: object) -> bytes:
    file = io.BytesIO()
    picture.save(file, file_format, **options)
    return file.getvalue()


def undecodable() -> dict[str, bytes]:
    jpeg = encoded(noise(), "JPEG")
    return {
        "truncated.jpg": jpeg[: len(jpeg) // 2],
        "text.jpg": b"this is text, whatever its name says\n" * 20,
        "empty.jpg": b"",
        "truncated.png": encoded(noise(), "PNG")[:-400],
        "too many pixels.png": encoded(Image.new("1", (3000, 3000)), "PNG"),
    }


def strange() -> dict[str, bytes]:
    """All of these are pictures."""
    jpeg = encoded(noise(), "JPEG")
    bad_exif = jpeg[:2] + b"\xff\xe1\x00\x10Exif\x00\x00garbage!" + jpeg[2:]
    frames = [noise(), Image.new("RGB", (40, 30))]
    deep = np.linspace(0, 65535, 1200).reshape(30, 40)
    return {
        "bad exif.jpg": bad_exif,
        "animated.gif": encoded(frames[0], "GIF", save_all=True, append_images=frames[1:]),
        "cmyk.jpg": encoded(noise().convert("CMYK"), "JPEG"),
        "16 bit.png": encoded(Image.fromarray(deep.astype(np.uint16)), "PNG"),
        "float.tiff": encoded(Image.fromarray((deep / 65535).astype(np.float32)), "TIFF"),
        "rgba.png": encoded(noise().convert("RGBA"), "PNG"),
        "palette.png": encoded(noise().convert("P"), "PNG"),
        "one pixel.png": encoded(noise(1, 1), "PNG"),
        "line.png": encoded(noise(20000, 1), "PNG"),
        "ünïcode 日本 'quoted' \t.png": encoded(noise(), "PNG"),
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two classes; `a` has everything that is odd about it, `b` sound pictures and links that lead to themselves."""
    for name, content in {**undecodable(), **strange()}.items():
        (tmp_path / "a").mkdir(exist_ok=True)
        (tmp_path / "a" / name).write_bytes(content)
    (tmp_path / "b").mkdir()
    for i in range(SOUND):
        (tmp_path / "b" / f"{i:02}.jpg").write_bytes(encoded(noise(), "JPEG"))
    (tmp_path / "b" / "loop").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "b" / LOOP).symlink_to(LOOP)
    return tmp_path


def fingerprint(folder: Path) -> dict[str, tuple[str, int, int]]:
    """Content, time of change and mode of each file."""
    found = {}
    for place, _, names in os.walk(folder):
        for name in names:
            path = Path(place, name)
            if path.is_symlink():
                continue
            status = path.stat()
            found[str(path)] = (hashlib.sha256(path.read_bytes()).hexdigest(), status.st_mtime_ns, status.st_mode)
    return found


def loaded(
    folder: Path, *, training: bool, bad_limit: float, workers: int, on_bad: list[BadSample] | None = None
) -> Iterator[Batch]:
    source = ImageFolder.open(folder, DataConfig(name=str(folder)))
    augment = augmentation("strong", 16) if training else None
    loader = WorkerLoader(
        source,
        np.arange(len(source)),
        preprocess=CONFIG,
        augment=augment,
        batch_size=5,
        seed=0,
        device=torch.device("cpu"),
        training=training,
        finish=BatchTransform(augment or AugmentConfig(), CONFIG).finish,
        workers=workers,
        bad_limit=bad_limit,
        pixel_limit=1_000_000,
        on_bad=None if on_bad is None else on_bad.append,
    )
    try:
        yield from loader.epoch(0)
    finally:
        loader.close()


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("training", [True, False])
def test_the_undecodable_are_left_out_and_recorded_the_strange_are_shown(
    folder: Path, training: bool, workers: int
) -> None:
    before = fingerprint(folder)
    assert len(before) == len(undecodable()) + len(strange()) + SOUND
    source = ImageFolder.open(folder, DataConfig(name=str(folder)))
    bad: list[BadSample] = []
    batches = list(loaded(folder, training=training, bad_limit=0.2, workers=workers, on_bad=bad))
    shown = torch.cat([batch.indices for batch in batches]).tolist()
    labels = torch.cat([batch.labels for batch in batches]).tolist()

    reasons = {Path(sample.where).name: sample.reason for sample in bad}
    assert set(reasons) == {*undecodable(), LOOP}
    assert "symbolic links" in reasons[LOOP]
    assert "truncated" in reasons["truncated.jpg"]
    assert reasons["text.jpg"] == "not a picture in any known format"
    assert reasons["empty.jpg"] == "an empty file (0 bytes)"
    assert "9,000,000 pixels, more than 1,000,000" in reasons["too many pixels.png"]
    assert len(bad) == len(reasons)
    # Nothing else is missing, nothing came instead, and every picture kept its label.
    assert sorted(shown + [sample.index for sample in bad]) == list(range(len(source)))
    assert labels == source.labels[shown].tolist()
    if not training:
        for batch in batches:
            for image, index in zip(batch.images, batch.indices.tolist(), strict=True):
                assert torch.equal(image, preprocess(decode_image(source.path(index)), CONFIG))
    assert fingerprint(folder) == before


@pytest.mark.parametrize("workers", [0, 2])
def test_more_than_one_in_a_hundred_stops(folder: Path, workers: int) -> None:
    before = fingerprint(folder)
    with pytest.raises(DataError) as stopped:
        list(loaded(folder, training=True, bad_limit=0.01, workers=workers))
    assert stopped.value.exit_code == 3
    text = str(stopped.value)
    assert any(f"{name}: " in text for name in (*undecodable(), LOOP))
    assert "--data.bad-limit" in text
    assert fingerprint(folder) == before


def test_the_animation_has_two_frames() -> None:
    """Else it is no animation."""
    with Image.open(io.BytesIO(strange()["animated.gif"])) as picture:
        assert len(list(ImageSequence.Iterator(picture))) == 2
