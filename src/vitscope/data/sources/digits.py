"""scikit-learn's handwritten digits: 1,797 real ones, 8 x 8 pixels with 17 greys (UCI's optical digits, test part)."""

from __future__ import annotations

import hashlib

import numpy as np
from sklearn.datasets import load_digits

from vitscope.data.config import DigitsConfig
from vitscope.data.sources.source import Source

BRIGHTEST = 16
"""The set's own scale; ours ends at 255."""


class Digits(Source):
    kind = "built-in digits"

    def __init__(self, place: str, config: DigitsConfig) -> None:
        del config  # has nothing to say yet
        pictures, labels = load_digits(return_X_y=True)
        self._pictures = np.rint(np.asarray(pictures).reshape(-1, 8, 8) * (255 / BRIGHTEST)).astype(np.uint8)
        super().__init__(place, np.asarray(labels), [str(digit) for digit in range(10)])

    def read(self, index: int) -> np.ndarray:
        return self._pictures[index]

    def where(self, index: int) -> str:
        return f"digits, picture {index} (counted from 0)"

    def content_hash(self) -> str:
        return hashlib.blake2b(self._pictures.tobytes() + self.labels.tobytes(), digest_size=16).hexdigest()
