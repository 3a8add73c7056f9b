"""How pictures lie on the device, and getting them there: decoded once, as bytes, all of one size.

C channels, H W stored size, N pictures.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import PIL

from vitscope.core.config import to_dict, updated
from vitscope.core.environment import usable_cpus
from vitscope.data import cache
from vitscope.data.config import AugmentConfig, PreprocessConfig
from vitscope.data.decode import bad_image, decode_image, is_passing, stored_size
from vitscope.data.in_threads import SMALL_PIXELS, Scanned, in_threads
from vitscope.data.loaders.loader import BadSample
from vitscope.data.preprocess import to_pixels
from vitscope.data.sources.source import Source, Stored

PICTURES = "pictures.npy"
PEEKS, PEEKED = 16, 32
"""Places, evenly spread, and pictures in a row at each, that are looked at to learn whether all have one size."""
ROOM_TO_CROP = 8 / 7
"""Pictures of many sizes are stored this much larger than the model's input, to be cut at random."""
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Storage:
    """What is kept of each picture: what `preprocess`, at the size of storage, makes of it before normalising."""

    preprocess: PreprocessConfig
    pixel_limit: int

    @property
    def size(self) -> tuple[int, int]:
        return self.preprocess.img_size

    @property
    def picture_bytes(self) -> int:
        return self.preprocess.in_chans * self.size[0] * self.size[1]

    @property
    def key(self) -> str:
        """Of everything that decides the bytes. Mean and std come later."""
        settings = {name: value for name, value in to_dict(self.preprocess).items() if name not in ("mean", "std")}
        return f"storage 2, {settings}, {self.pixel_limit}, Pillow {PIL.__version__}"

    def pixels(self, stored: Stored) -> np.ndarray:
        """(C, H, W) uint8."""
        picture = decode_image(stored, in_chans=self.preprocess.in_chans, pixel_limit=self.pixel_limit)
        if (picture.height, picture.width) == self.size and self.preprocess.crop_share == 1:
            array = np.asarray(picture)  # nothing to resize: the same pixels for a tenth of the time
            return array[None] if array.ndim == 2 else array.transpose(2, 0, 1)
        return to_pixels(picture, self.preprocess).numpy()


def plan_storage(
    one_size: tuple[int, int] | None, preprocess: PreprocessConfig, augment: AugmentConfig | None, pixel_limit: int
) -> Storage:
    """How pictures must lie for what will be done to them. `one_size`: that of all pictures, if they have one; then
    nothing is lost by storing them."""
    height, width = preprocess.img_size
    crop = "none" if augment is None else augment.crop
    if augment is None or crop in ("none", "padded"):
        return Storage(preprocess, pixel_limit)
    if crop == "resized":
        size = one_size or (round(height * ROOM_TO_CROP), round(width * ROOM_TO_CROP))
    else:
        size = (height + augment.margin, width + augment.margin)
        if one_size is not None and preprocess.crop != "squash":  # shape kept: the longer side may be cut anywhere too
            scale = max(size[0] / one_size[0], size[1] / one_size[1])
            size = (max(size[0], round(one_size[0] * scale)), max(size[1], round(one_size[1] * scale)))
    return Storage(updated(preprocess, img_size=size, crop_share=1.0), pixel_limit)


def common_size(source: Source, rows: np.ndarray) -> tuple[int, int] | None:
    """(height, width) if all pictures looked at have the same. Only headers are read, of some pictures."""
    starts = np.linspace(0, max(0, len(rows) - PEEKED), PEEKS).astype(np.int64)
    peeked = np.unique((starts[:, None] + np.arange(min(PEEKED, len(rows)))).ravel())
    sizes = set()
    for _, stored in source.scan(rows[peeked]):
        with contextlib.suppress(Exception):  # told when it is decoded
            sizes.add(stored_size(stored))
        if len(sizes) > 1:
            return None
    return sizes.pop() if sizes else None


def load_pictures(
    source: Source, storage: Storage, *, keep: bool = True, progress: Progress | None = None
) -> tuple[np.ndarray, list[BadSample]]:
    """All pictures of a source (N, C, H, W), and those that could not be decoded (black). Kept for the next run under
    the hash of the files' content, so that nothing stale is ever used. Of several processes one decodes."""
    if not keep:
        pictures, bad, _ = decode_all(source, storage, progress=progress)
        return pictures, bad
    key = cache.key_of(source.content_hash(), storage.key)
    with cache.making("pictures", key):
        found = cache.find("pictures", key)
        if found is not None:
            folder, meta = found
            bad = [BadSample(index, source.where(index), reason) for index, reason in meta["bad"]]
            return np.load(folder / PICTURES, mmap_mode="r"), bad
        pictures, bad, passing = decode_all(source, storage, progress=progress)
        if not passing:  # what failed for want of memory or a disk may succeed next time
            _keep(key, pictures, bad)
    return pictures, bad


def decode_all(
    source: Source, storage: Storage, *, progress: Progress | None = None
) -> tuple[np.ndarray, list[BadSample], bool]:
    """Decode every picture once, large ones in as many threads as there are CPUs. Also tells whether some failed for
    reasons that may pass."""
    count = len(source)
    pictures = np.zeros((count, storage.preprocess.in_chans, *storage.size), dtype=np.uint8)
    bad: list[BadSample] = []
    passing = False

    def decode(scanned: Scanned) -> tuple[int, Exception | None]:
        index, stored = scanned
        try:
            if isinstance(stored, Exception):
                raise stored
            pictures[index] = storage.pixels(stored)
        except Exception as error:
            return index, error
        return index, None

    is_much = storage.picture_bytes > SMALL_PIXELS
    decoded = in_threads(decode, source.scan(np.arange(count)), usable_cpus(), is_much=is_much)
    for done, (index, error) in enumerate(decoded, start=1):
        if error is not None:
            bad.append(BadSample(index, source.where(index), bad_image(error).what))
            passing = passing or is_passing(error)
        if progress is not None:
            progress(done, count)
    return pictures, sorted(bad, key=lambda sample: sample.index), passing


def _keep(key: str, pictures: np.ndarray, bad: list[BadSample]) -> None:
    """A disk that is full or read-only costs time next run, nothing else."""
    try:
        entry = cache.Writing("pictures", key)
    except OSError as error:
        cache.say_not_kept(error)
        return
    try:
        np.save(entry.folder / PICTURES, pictures)
        entry.finish(bad=[(sample.index, sample.reason) for sample in bad])
    except OSError as error:
        entry.abandon()
        cache.say_not_kept(error)
    except BaseException:
        entry.abandon()
        raise
