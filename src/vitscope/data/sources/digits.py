"""scikit-learn's handwritten digits: 1,797 real ones, 8 x 8 pixels with 17 greys (UCI's optical digits, test part)."""

from __future__ import annotations

import hashlib
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from vitscope.data.config import DigitsConfig
from vitscope.data.sources.source import Source

BRIGHTEST = 16
"""The set's own scale; ours ends at 255."""


class Digits(Source):
    kind = "built-in digits"

    def __init__(self, place: str, config: DigitsConfig) -> None:
        del config  # has nothing to say yet
        rows = np.loadtxt(_table(), delimiter=",")  # 64 pixels and the digit
        self._pictures = np.rint(rows[:, :-1].reshape(-1, 8, 8) * (255 / BRIGHTEST)).astype(np.uint8)
        super().__init__(place, rows[:, -1].astype(np.int64), [str(digit) for digit in range(10)])

    def read(self, index: int) -> np.ndarray:
        return self._pictures[index]

    def where(self, index: int) -> str:
        return f"digits, picture {index} (counted from 0)"

    def content_hash(self) -> str:
        return hashlib.blake2b(self._pictures.tobytes() + self.labels.tobytes(), digest_size=16).hexdigest()


def _table() -> Path:
    """The file in the installed package, which is a second to import."""
    package = find_spec("sklearn")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("No module named 'sklearn'", name="sklearn")
    return Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
