"""Pictures held as arrays.

Axes: N pictures, H rows, W columns, C channels. A block holds bytes, (N, H, W) or (N, H, W, C).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vitscope.core.errors import DataError, expected
from vitscope.data.sources.classes import check_parts, number_classes
from vitscope.data.sources.source import Source

HASHED_AT_ONCE_BYTES = 64 * 2**20


@dataclass(frozen=True)
class Block:
    """The pictures of one file, in its order."""

    name: str
    """The file, for people."""
    part: str | None
    """What the file calls its part; None: no part."""
    pixels: np.ndarray
    labels: np.ndarray
    """(N,) numbers or texts, as the file has them."""


class ArraySource(Source):
    """Pictures in blocks of equal shape and type, one block after the other."""

    def __init__(
        self, place: str, blocks: Sequence[Block], class_names: Sequence[str] | None = None, notes: Sequence[str] = ()
    ) -> None:
        for block in blocks:
            if len(block.pixels) != len(block.labels):
                raise DataError(
                    f"{len(block.pixels):,} pictures but {len(block.labels):,} labels",
                    where=f"{place}: {block.name}",
                    fix="give every picture one label: the file is damaged or was put together wrongly",
                )
        self.blocks = [block.pixels for block in blocks]
        self._names = [block.name for block in blocks]
        self._ends = np.cumsum([len(block.pixels) for block in blocks])
        labels, class_names, told = number_classes(np.concatenate([block.labels for block in blocks]), class_names)
        parts: dict[str, list[np.ndarray]] = {}
        for block, end in zip(blocks, self._ends, strict=True):
            if block.part is not None:
                parts.setdefault(block.part, []).append(np.arange(end - len(block.pixels), end))
        joined = {name: np.concatenate(numbers) for name, numbers in parts.items()}
        checked = check_parts(joined, labels, class_names, place)
        super().__init__(place, labels, class_names, checked, [*notes, *told])

    def read(self, index: int) -> np.ndarray:
        block, row = self._find(index)
        return self.blocks[block][row]

    def where(self, index: int) -> str:
        block, row = self._find(index)
        return f"{self._names[block]}, picture {row} (counted from 0)"

    def content_hash(self) -> str:
        digest = hashlib.blake2b(digest_size=16)
        for pixels in (*self.blocks, self.labels):
            hash_array(digest, pixels)
        return digest.hexdigest()

    def _find(self, index: int) -> tuple[int, int]:
        """Block and row of a picture."""
        if not 0 <= index < len(self):
            raise IndexError(expected("picture", f"0 to {len(self) - 1}", index))
        block = int(np.searchsorted(self._ends, index, side="right"))
        return block, index - int(self._ends[block]) + len(self.blocks[block])


def hash_array(digest: hashlib.blake2b, array: np.ndarray) -> None:
    """Shape, type and bytes, some rows at a time: a memory-mapped array may be larger than the memory."""
    digest.update(f"{array.shape} {array.dtype.str};".encode())
    rows = max(1, HASHED_AT_ONCE_BYTES // max(1, array.nbytes // max(1, len(array))))
    for start in range(0, len(array), rows):
        digest.update(np.ascontiguousarray(array[start : start + rows]).tobytes())
