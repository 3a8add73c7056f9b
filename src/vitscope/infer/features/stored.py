"""What the two kinds of files share: rows beside the numbers, a stand-in for bfloat16, and how one is written."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from vitscope.infer.features.reading import Feature

BF16 = "bfloat16"


@dataclass
class Rows:
    """What is known of each picture, beside its features."""

    paths: list[str | None] = field(default_factory=list)
    labels: list[int] | None = None
    parts: list[str] | None = None

    def extend(self, others: Rows) -> None:
        self.paths += others.paths
        if others.labels is not None:
            self.labels = self.labels or []
            self.labels += others.labels
        if others.parts is not None:
            self.parts = self.parts or []
            self.parts += others.parts


class FeatureWriter(ABC):
    """Takes features as they come. Leaving its `with` before `finish` leaves nothing behind."""

    def __init__(self, path: Path, features: Sequence[Feature], dtype: torch.dtype) -> None:
        self.path, self.features = path, features
        self.numbers = as_numbers(torch.zeros(1, dtype=dtype)).dtype
        """NumPy's type of what is written."""

    @abstractmethod
    def open(self) -> None: ...

    @abstractmethod
    def add(self, rows: Rows, values: Mapping[str, Tensor]) -> None:
        """Some more pictures."""

    @abstractmethod
    def finish(self, about: Mapping[str, Any], classes: Sequence[str]) -> None:
        """That was all; now the file takes its place."""

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def as_numbers(values: Tensor) -> np.ndarray:
    """NumPy has no bfloat16: its 16 bits are kept as they are, in uint16, and the metadata says so."""
    return values.view(torch.uint16).numpy() if values.dtype == torch.bfloat16 else values.numpy()


def from_numbers(numbers: np.ndarray, dtype: str) -> Tensor:
    """The inverse of `as_numbers`; `dtype` is the one the metadata name."""
    found = torch.from_numpy(np.require(numbers, requirements=["C", "W"]))
    return found.view(torch.bfloat16) if dtype == BF16 else found
