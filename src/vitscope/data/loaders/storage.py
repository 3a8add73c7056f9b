"""How pictures lie on the device, and getting them there: decoded once, as bytes, all of one size.

C channels, H W stored size, N pictures.
"""

from __future__ import annotations

import contextlib
import io
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

import numpy as np
import PIL
from PIL import Image

from vitscope.core.config import to_dict, updated
from vitscope.core.environment import usable_cpus
from vitscope.data import cache
from vitscope.data.config import AugmentConfig, PreprocessConfig
from vitscope.data.decode import BadImageError, bad_image, decode_image
from vitscope.data.loaders.loader import BadSample
from vitscope.data.preprocess import to_pixels
from vitscope.data.sources.source import Source, Stored

PICTURES = "pictures.npy"
CHUNK = 128
"""Pictures a thread decodes at a time: one by one the hand-over would cost as much as the work."""
PEEKS, PEEKED = 16, 32
"""Places, evenly spread, and pictures in a row at each, that are looked at to learn whether all have one size."""
ROOM_TO_CROP = 8 / 7
"""Pictures of many sizes are stored this much larger than the model's input, to be cut at random."""
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Storage:
    """What is kept of each picture: `preprocess` at its own size; None: the pixels as they are, all of `size`."""

    size: tuple[int, int]
    preprocess: PreprocessConfig | None
    in_chans: int
    pixel_limit: int

    def pixels(self, stored: Stored) -> np.ndarray:
        """(C, H, W) uint8."""
        picture = decode_image(stored, in_chans=self.in_chans, pixel_limit=self.pixel_limit)
        if self.preprocess is not None:
            return to_pixels(picture, self.preprocess).numpy()
        if (picture.height, picture.width) != self.size:  # the peek did not see it
            picture = picture.resize((self.size[1], self.size[0]), Image.Resampling.BICUBIC)
        array = np.asarray(picture)
        return array[None] if array.ndim == 2 else array.transpose(2, 0, 1)

    @property
    def picture_bytes(self) -> int:
        return self.in_chans * self.size[0] * self.size[1]

    @property
    def key(self) -> str:
        settings = None
        if self.preprocess is not None:  # mean and std come after storage
            settings = {k: v for k, v in to_dict(self.preprocess).items() if k not in ("mean", "std")}
        return f"storage 1, {self.size}, {self.in_chans}, {settings}, {self.pixel_limit}, Pillow {PIL.__version__}"


def plan_storage(
    one_size: tuple[int, int] | None, preprocess: PreprocessConfig, augment: AugmentConfig | None, pixel_limit: int
) -> Storage:
    """How pictures must lie for what will be done to them. `one_size`: that of all pictures, if they have one."""
    crop = "none" if augment is None else augment.crop
    height, width = preprocess.img_size
    if crop in ("none", "padded"):
        return Storage((height, width), preprocess, preprocess.in_chans, pixel_limit)
    if crop == "resized" and one_size is not None:
        return Storage(one_size, None, preprocess.in_chans, pixel_limit)
    if crop == "resized" or augment is None:
        size = (round(height * ROOM_TO_CROP), round(width * ROOM_TO_CROP))
    else:
        size = (height + augment.margin, width + augment.margin)
        if one_size is not None:  # shape kept: the longer side may be cut anywhere too
            scale = max(size[0] / one_size[0], size[1] / one_size[1])
            size = (max(size[0], round(one_size[0] * scale)), max(size[1], round(one_size[1] * scale)))
    larger = updated(preprocess, img_size=size, crop_share=1.0)
    return Storage(size, larger, preprocess.in_chans, pixel_limit)


def common_size(source: Source, rows: np.ndarray) -> tuple[int, int] | None:
    """(height, width) if all pictures looked at have the same. Only headers are read, of some pictures."""
    starts = np.linspace(0, max(0, len(rows) - PEEKED), PEEKS).astype(np.int64)
    peeked = np.unique((starts[:, None] + np.arange(min(PEEKED, len(rows)))).ravel())
    sizes = set()
    for _, stored in source.scan(rows[peeked]):
        with contextlib.suppress(Exception):  # told when it is decoded
            sizes.add(_size(stored))
        if len(sizes) > 1:
            return None
    return sizes.pop() if sizes else None


def load_pictures(
    source: Source, storage: Storage, *, keep: bool = True, progress: Progress | None = None
) -> tuple[np.ndarray, list[BadSample]]:
    """All pictures of a source (N, C, H, W), and those that could not be decoded (black). Kept for the next run under
    the hash of the files' content, so that nothing stale is ever used."""
    key = cache.key_of(source.content_hash(), storage.key) if keep else ""
    found = cache.find("pictures", key) if keep else None
    if found is not None:
        folder, meta = found
        return np.load(folder / PICTURES, mmap_mode="r"), [BadSample(**bad) for bad in meta["bad"]]
    pictures, bad = decode_all(source, storage, progress=progress)
    if keep:
        _keep(key, pictures, bad)
    return pictures, bad


def decode_all(
    source: Source, storage: Storage, *, progress: Progress | None = None
) -> tuple[np.ndarray, list[BadSample]]:
    """Decode every picture once, in as many threads as there are CPUs (Pillow decodes without Python's lock)."""
    count = len(source)
    pictures = np.zeros((count, storage.in_chans, *storage.size), dtype=np.uint8)
    bad: list[BadSample] = []
    done = 0

    def decode(chunk: Sequence[tuple[int, Stored | Exception]]) -> list[BadSample]:
        found = []
        for index, stored in chunk:
            try:
                if isinstance(stored, Exception):
                    raise stored
                pictures[index] = storage.pixels(stored)
            except Exception as error:
                reason: BadImageError = bad_image(error)
                found.append(BadSample(index, source.where(index), reason.what))
        return found

    with ThreadPoolExecutor(usable_cpus()) as pool:
        for chunk_bad, size in _in_turn(pool, decode, _chunks(source.scan(np.arange(count)))):
            bad.extend(chunk_bad)
            done += size
            if progress is not None:
                progress(done, count)
    return pictures, sorted(bad, key=lambda sample: sample.index)


def _in_turn(pool: ThreadPoolExecutor, work: Callable[[Any], Any], chunks: Iterable[Any]) -> Iterator[tuple[Any, int]]:
    """Results in order, never more than a few chunks ahead: encoded pictures must not pile up."""
    waiting: deque[tuple[Future[Any], int]] = deque()
    for chunk in chunks:
        waiting.append((pool.submit(work, chunk), len(chunk)))
        if len(waiting) > 2 * usable_cpus():
            future, size = waiting.popleft()
            yield future.result(), size
    for future, size in waiting:
        yield future.result(), size


def _chunks(pictures: Iterator[Any]) -> Iterator[list[Any]]:
    while chunk := list(islice(pictures, CHUNK)):
        yield chunk


def _keep(key: str, pictures: np.ndarray, bad: list[BadSample]) -> None:
    """A disk that is full or read-only costs time next run, nothing else."""
    try:
        entry = cache.Writing("pictures", key)
    except OSError as error:
        cache.say_not_kept(error)
        return
    try:
        np.save(entry.folder / PICTURES, pictures)
        entry.finish(bad=[asdict(sample) for sample in bad])
    except OSError as error:
        entry.abandon()
        cache.say_not_kept(error)
    except BaseException:
        entry.abandon()
        raise


def _size(stored: Stored | Exception) -> tuple[int, int]:
    if isinstance(stored, Exception):
        raise stored
    if isinstance(stored, np.ndarray):
        return stored.shape[0], stored.shape[1]
    with Image.open(io.BytesIO(stored)) as opened:
        turned = opened.getexif().get(0x0112, 1) in (5, 6, 7, 8) if "exif" in opened.info else False
        return (opened.width, opened.height) if turned else (opened.height, opened.width)
