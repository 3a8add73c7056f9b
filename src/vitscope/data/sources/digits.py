"""scikit-learn's handwritten digits: 1,797 real ones, 8 x 8 pixels with 17 greys (UCI's optical digits, test part)."""

from __future__ import annotations

import hashlib
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from vitscope.data.config import DigitsConfig
from vitscope.data.sources.source import Source

FILE = "datasets/data/digits.csv.gz"
"""In scikit-learn's folder."""
BRIGHTEST = 16
"""The set's own scale; ours ends at 255."""


class Digits(Source):
    kind = "built-in digits"

    def __init__(self, place: str, config: DigitsConfig) -> None:
        del config  # has nothing to say yet
        pixels, labels = _table()
        self._pictures = np.rint(pixels.reshape(-1, 8, 8) * (255 / BRIGHTEST)).astype(np.uint8)
        super().__init__(place, labels, [str(digit) for digit in range(10)])

    def read(self, index: int) -> np.ndarray:
        return self._pictures[index]

    def where(self, index: int) -> str:
        return f"digits, picture {index} (counted from 0)"

    def content_hash(self) -> str:
        return hashlib.blake2b(self._pictures.tobytes() + self.labels.tobytes(), digest_size=16).hexdigest()


def _table() -> tuple[np.ndarray, np.ndarray]:
    """(1797, 64) pixels and (1797,) digits. scikit-learn is a second to import, and its file says the same; where it is
    not at its place, scikit-learn is asked."""
    package = find_spec("sklearn")
    file = None if package is None or package.origin is None else Path(package.origin).parent / FILE
    if file is None or not file.is_file():
        from sklearn.datasets import load_digits

        pixels, labels = load_digits(return_X_y=True)
        return np.asarray(pixels), np.asarray(labels, dtype=np.int64)
    rows = np.loadtxt(file, delimiter=",")
    return rows[:, :-1], rows[:, -1].astype(np.int64)
