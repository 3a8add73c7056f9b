"""A source that holds encoded pictures in memory, and pictures to put into it."""

from __future__ import annotations

import io
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from PIL import Image

from vitscope.data.config import DataConfig
from vitscope.data.dataset import Dataset
from vitscope.data.sources.source import Source, Stored
from vitscope.data.splits import Splits


class InMemory(Source):
    kind = "pictures in memory"

    def __init__(self, contents: Sequence[Stored], labels: Sequence[int], class_names: Sequence[str]) -> None:
        self.contents = list(contents)
        super().__init__("memory", np.array(labels), class_names)

    def read(self, index: int) -> Stored:
        return self.contents[index]

    def where(self, index: int) -> str:
        return f"memory {index}"

    def content_hash(self) -> str:
        return "0"


def dataset_of(
    parts: dict[str, Sequence[Stored]], labels: dict[str, Sequence[int]] | None = None, classes: int = 2
) -> Dataset:
    """train, val and test in this order; labels alternate where none are given."""
    names = ("train", "val", "test")
    contents = [content for part in names for content in parts.get(part, ())]
    given = [
        label
        for part in names
        for label in (labels or {}).get(part, [n % classes for n in range(len(parts.get(part, ())))])
    ]
    bounds = np.cumsum([0, *(len(parts.get(part, ())) for part in names)])
    ranges = [np.arange(low, high) for low, high in pairwise(bounds)]
    source = InMemory(contents, given, [f"class {n}" for n in range(classes)])
    return Dataset(source, Splits(*ranges, how="given"), DataConfig())


def photograph(seed: int, size: int = 64) -> Image.Image:
    """Smooth random colours with edges: as much detail as a photograph, different for every seed."""
    rng = np.random.default_rng(seed)
    small = Image.fromarray(rng.integers(0, 256, (6, 6, 3), dtype=np.uint8))
    fine = Image.fromarray(rng.integers(0, 256, (24, 24, 3), dtype=np.uint8))
    coarse = small.resize((size, size), Image.Resampling.BICUBIC)
    return Image.blend(coarse, fine.resize((size, size), Image.Resampling.BICUBIC), 0.25)


def encoded(picture: Image.Image, kind: str = "PNG", **settings: object) -> bytes:
    file = io.BytesIO()
    picture.save(file, kind, **settings)
    return file.getvalue()
