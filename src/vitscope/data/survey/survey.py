"""One pass over the pictures of a data set: what they are, which are bad, odd or there twice, and their mean and std.

Pictures are decoded by threads, a bounded chunk at a time; of each only a few numbers, a hash and a thumbnail stay.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from PIL import Image

from vitscope.core.environment import usable_cpus
from vitscope.core.errors import DataError
from vitscope.data.dataset import Dataset
from vitscope.data.decode import BadImageError, bad_image, decode_with_remarks
from vitscope.data.in_threads import Scanned, in_threads
from vitscope.data.sources.source import Stored
from vitscope.data.splits import PARTS, TRAIN
from vitscope.data.survey.duplicates import Duplicates, find_duplicates
from vitscope.data.survey.misnamed import misnamed
from vitscope.data.survey.near import SIDE

MOST_THREADS = 8
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Told:
    """Something to say about one picture."""

    index: int
    where: str
    part: str
    what: str


@dataclass(frozen=True)
class Survey:
    """What a data set holds. Counts are of the pictures looked at, unless they say otherwise."""

    total: int
    """Pictures in all parts."""
    looked_at: int
    """Pictures decoded: all, or an even choice."""
    counts: dict[str, list[int]]
    """Part -> pictures of each class, over all pictures."""
    bad: list[Told]
    """Pictures that cannot be decoded, and why."""
    unusual: list[Told]
    """Pictures that needed a treatment, and which."""
    formats: dict[str, int]
    """JPEG, PNG, ..., or 'pixels' where the set holds no encoded files."""
    modes: dict[str, int]
    """Pillow's modes as stored: RGB, L, CMYK, ..."""
    sizes: dict[tuple[int, int], int]
    """(height, width) -> pictures, most frequent first."""
    grey: int
    """Pictures whose channels are all equal, however they are stored."""
    plain: list[Told]
    """Pictures of a single colour."""
    mean: tuple[float, ...] | None
    """Per channel (RGB), pixels from 0 to 1, over the training pictures looked at, each counted alike; or None."""
    std: tuple[float, ...] | None
    duplicates: Duplicates

    @property
    def good(self) -> int:
        return self.looked_at - len(self.bad)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON. Sizes become [height, width, pictures]."""
        plain = {key: value for key, value in asdict(self).items() if key not in ("sizes", "duplicates")}
        plain["sizes"] = [[*size, count] for size, count in self.sizes.items()]
        plain["duplicates"] = self.duplicates.to_dict()
        return plain


@dataclass(frozen=True)
class _Seen:
    """What stays of one picture."""

    index: int
    bad: str | None = None
    format: str = ""
    mode: str = ""
    size: tuple[int, int] = (0, 0)
    remarks: tuple[str, ...] = ()
    content: bytes = b""
    thumbnail: bytes = b""
    histogram: np.ndarray | None = None
    """(3, 256) pixels of each value, from which sums and squares follow exactly."""
    grey: bool = False
    plain: bool = False


def survey(dataset: Dataset, *, limit: int = 100_000, progress: Progress | None = None) -> Survey:
    """Look at all pictures in the three parts, or at `limit` of them spread evenly."""
    source, splits = dataset.source, dataset.splits
    everything = np.concatenate([splits[part] for part in PARTS])
    part_of = dict(zip(everything.tolist(), (part for part in PARTS for _ in range(len(splits[part]))), strict=True))
    everything.sort()
    if limit < 1:
        raise DataError(f"nothing to look at: limit {limit}", fix="look at 1 picture or more")
    chosen = everything
    if limit < len(everything):
        chosen = everything[np.linspace(0, len(everything) - 1, limit).round().astype(np.int64)]

    def told(index: int, what: str) -> Told:
        return Told(index, source.where(index), part_of[index], what)

    bad, unusual, plain = [], [], []
    formats, modes, sizes = Counter[str](), Counter[str](), Counter[tuple[int, int]]()
    grey = 0
    shares = np.zeros((3, 256))
    numbers: list[int] = []
    hashes: list[bytes] = []
    thumbnails = np.empty((len(chosen), SIDE, SIDE, 3), np.uint8)
    for done, seen in enumerate(_look(source.scan(chosen), dataset.config.pixel_limit), start=1):
        if progress is not None:
            progress(done, len(chosen))
        if seen.bad is not None:
            bad.append(told(seen.index, seen.bad))
            continue
        thumbnails[len(numbers)] = np.frombuffer(seen.thumbnail, np.uint8).reshape(SIDE, SIDE, 3)
        numbers.append(seen.index)
        hashes.append(seen.content)
        formats[seen.format] += 1
        modes[seen.mode] += 1
        sizes[seen.size] += 1
        grey += seen.grey
        where = source.where(seen.index)
        unusual += [told(seen.index, remark) for remark in (*seen.remarks, *misnamed(where, seen.format))]
        if seen.plain:
            plain.append(told(seen.index, "a single colour"))
        if part_of[seen.index] == TRAIN and seen.histogram is not None:
            # Every picture counts alike, as in training, whatever its size.
            shares += seen.histogram / seen.histogram[0].sum()
    mean, std = _mean_and_std(shares)
    for rows in (bad, unusual, plain):
        rows.sort(key=lambda row: row.index)
    return Survey(
        total=len(everything),
        looked_at=len(chosen),
        counts={part: dataset.counts(part).tolist() for part in PARTS},
        bad=bad,
        unusual=unusual,
        formats=dict(formats.most_common()),
        modes=dict(modes.most_common()),
        sizes=dict(sizes.most_common()),
        grey=grey,
        plain=plain,
        mean=mean,
        std=std,
        duplicates=find_duplicates(
            np.array(numbers, np.int64),
            hashes,
            thumbnails[: len(numbers)],
            [part_of[number] for number in numbers],
            source.labels[numbers].tolist(),
        ),
    )


def _look(scanned: Iterable[Scanned], pixel_limit: int) -> Iterator[_Seen]:
    """In the order of the scan."""
    return in_threads(lambda seen: _look_at(*seen, pixel_limit), scanned, min(MOST_THREADS, usable_cpus()))


def _look_at(index: int, content: Stored | Exception, pixel_limit: int) -> _Seen:
    if isinstance(content, Exception):
        return _Seen(index, bad=bad_image(content).what)
    try:
        decoded = decode_with_remarks(content, pixel_limit=pixel_limit)
        picture = decoded.picture
        pixels = picture.tobytes()
        thumbnail = picture.resize((SIDE, SIDE), Image.Resampling.BILINEAR)
    except BadImageError as error:
        return _Seen(index, bad=error.what)
    except (MemoryError, OSError, ValueError) as error:
        return _Seen(index, bad=bad_image(error).what)
    histogram = np.array(picture.histogram(), np.int64).reshape(3, 256)
    digest = hashlib.blake2b(b"%d %d " % picture.size, digest_size=16)
    digest.update(pixels)
    same_histograms = bool((histogram == histogram[0]).all())  # where they differ there is no need to compare pixels
    return _Seen(
        index,
        format=decoded.format or "pixels",
        mode=decoded.mode,
        size=decoded.size,
        remarks=tuple(decoded.remarks),
        content=digest.digest(),
        thumbnail=thumbnail.tobytes(),
        histogram=histogram,
        grey=same_histograms and pixels[0::3] == pixels[1::3] == pixels[2::3],
        plain=bool((histogram.max(axis=1) == picture.width * picture.height).all()),
    )


def _mean_and_std(shares: np.ndarray) -> tuple[tuple[float, ...] | None, tuple[float, ...] | None]:
    """From how often each value 0 to 255 comes, per channel."""
    weight = shares.sum(axis=1)
    if not weight.all():
        return None, None
    values = np.arange(256) / 255
    mean = shares @ values / weight
    spread = shares @ values**2 / weight - mean**2
    return tuple(mean.round(12).tolist()), tuple(np.sqrt(spread.clip(min=0)).round(12).tolist())
