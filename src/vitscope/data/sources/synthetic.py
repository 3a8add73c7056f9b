"""Noise with a label in its brightness: pictures for measuring speed, and for trying things out."""

from __future__ import annotations

import hashlib

import numpy as np

from vitscope.core.config import to_dict
from vitscope.core.seed import derive_seed
from vitscope.data.config import SyntheticConfig
from vitscope.data.sources.source import Source


class Synthetic(Source):
    kind = "built-in noise"

    def __init__(self, place: str, config: SyntheticConfig) -> None:
        self.config = config
        labels = np.arange(config.count) % config.classes
        super().__init__(place, labels, [f"level {number}" for number in range(config.classes)])

    def read(self, index: int) -> np.ndarray:
        """Uniform noise over half the range; the label decides where that half begins."""
        config = self.config
        rng = np.random.default_rng(derive_seed(config.seed, "synthetic", index))
        shape = (config.size, config.size) if config.channels == 1 else (config.size, config.size, config.channels)
        begin = 127 * self.labels[index] / (config.classes - 1)
        return (rng.integers(0, 128, shape) + int(begin)).astype(np.uint8)

    def where(self, index: int) -> str:
        return f"{self.place}, picture {index}"

    def content_hash(self) -> str:
        return hashlib.blake2b(f"synthetic 1 {to_dict(self.config)}".encode(), digest_size=16).hexdigest()
