"""What a training loop may expect of a loader, whichever it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from torch import Tensor

AUGMENT = "augment"
"""Purpose of the keys that vary pictures; others than those of the order."""
LASTING = "lasting"
"""Purpose of the keys that stay the same through all epochs."""


class Batch(NamedTuple):
    """Pictures ready for the model, on its device."""

    images: Tensor
    """(B, C, H, W) float32, normalised."""
    labels: Tensor
    """(B,) int64, or (B, K) float32 shares where pictures are mixed."""
    indices: Tensor
    """(B,) the pictures' numbers in their source."""


@dataclass(frozen=True)
class BadSample:
    """A picture that was left out, and why."""

    index: int
    where: str
    reason: str


class Loader(Protocol):
    """Batches as functions of (seed, epoch, batch): the same whatever the workers, processes or interruptions."""

    why: str
    """Which loader this is and why it was chosen, for the log."""
    num_batches: int
    """Batches in an epoch, the same for every process."""
    num_pictures: int
    """Pictures in an epoch, over all processes."""
    bad_samples: list[BadSample]
    """What was left out so far."""

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """The batches of one epoch, from number `start` on."""
        ...

    def close(self) -> None:
        """Give back processes and memory. The loader cannot be used after it."""
        ...
