"""What every source of pictures is, whatever files it reads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from vitscope.core.errors import DataError, expected
from vitscope.data.decode import bad_image, decode_image

if TYPE_CHECKING:
    from PIL.Image import Image

Stored = bytes | np.ndarray
"""A picture as its source keeps it: an encoded file's bytes, or pixels (H, W) or (H, W, C) of uint8."""


def size_bytes(stored: Stored | Exception) -> int:
    """What a picture, or what came in place of one, takes in memory."""
    if isinstance(stored, Exception):
        return 0
    return len(stored) if isinstance(stored, bytes) else stored.nbytes


class SourceLostError(DataError):
    """The pictures as a whole are out of reach: no fault of the one that was asked for."""


class Source(ABC):
    """Labelled pictures, numbered from 0 through all parts. Can be pickled: workers get a copy each."""

    kind: str
    """What was recognised, for people: 'image folder'."""

    def __init__(
        self,
        place: str,
        labels: np.ndarray,
        class_names: Sequence[str],
        parts: dict[str, np.ndarray] | None = None,
        notes: Sequence[str] = (),
    ) -> None:
        """`labels` (N,) counts classes from 0; `parts` maps the names the source itself gives (train, test, ...) to
        picture numbers, and is empty where all pictures are one pool; `notes` say what was left out on opening."""
        self.place = place
        """The path or name it was opened by."""
        self.labels = np.asarray(labels, dtype=np.int64)
        self.class_names = tuple(class_names)
        self.parts = {name: np.asarray(numbers, dtype=np.int64) for name, numbers in (parts or {}).items()}
        self.notes = list(notes)
        self._refuse_labels()

    def __len__(self) -> int:
        return len(self.labels)

    @abstractmethod
    def read(self, index: int) -> Stored:
        """One picture as it is stored. May fail in any way a damaged file fails."""

    @abstractmethod
    def where(self, index: int) -> str:
        """Where a person finds the picture: a path, or a file and a row."""

    @abstractmethod
    def content_hash(self) -> str:
        """Changes when any picture changes; what is derived from the pictures is cached under it."""

    def scan(self, indices: Sequence[int] | np.ndarray) -> Iterator[tuple[int, Stored | Exception]]:
        """Many pictures (number, content) in the order that is quickest to read. A picture that cannot be read comes
        with its exception instead of ending the pass."""
        for index in map(int, indices):
            try:
                yield index, self.read(index)
            except Exception as error:  # recorded by whoever scans
                yield index, error

    def scan_by_lot(
        self, indices: Sequence[int] | np.ndarray, rng: np.random.Generator
    ) -> Iterator[tuple[int, Stored | Exception]]:
        """The same in an order drawn by lot: what has come when one stops is a fair sample of what was asked for, as
        far as the files can be read so without being read twice."""
        return Source.scan(self, rng.permutation(np.asarray(indices, dtype=np.int64)))

    def prepare_random_access(self, *, keep: bool = True) -> None:  # noqa: B027 (most need nothing)
        """Called once before single pictures are read in random order, by many processes. `keep`: what has to be
        made for it may be left in the cache for the next run."""

    def picture(self, index: int, in_chans: int = 3) -> Image:
        """One picture, decoded. Raises BadImageError with its place, whatever was wrong with it."""
        try:
            return decode_image(self.read(index), in_chans=in_chans)
        except SourceLostError:
            raise
        except Exception as error:
            raise bad_image(error, where=self.where(index)) from None

    def _refuse_labels(self) -> None:
        if not len(self.labels):
            raise DataError("no pictures found", where=self.place, fix=f"give a {self.kind} that holds pictures")
        wrong = np.flatnonzero((self.labels < 0) | (self.labels >= len(self.class_names)))
        if len(wrong):
            first = int(wrong[0])
            raise DataError(
                expected("label", f"0 to {len(self.class_names) - 1}", int(self.labels[first]))
                + f" ({len(wrong):,} of {len(self.labels):,} are out of range)",
                where=self.where(first),
                fix="number the classes from 0 without gaps, or mend the class names",
            )
