"""What a training loop may expect of a loader, whichever it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from torch import Tensor

from vitscope.core.errors import VitscopeError

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
    """Batches as functions of (seed, epoch, batch): the same whatever the workers, processes or interruptions. Only
    mixing looks at company: partners come from the process's own part of the batch."""

    why: str
    """Which loader this is and why it was chosen, for the log."""
    num_batches: int
    """Batches in an epoch, the same for every process. In evaluation a process whose part of the last one is empty
    gives one fewer, so processes must meet after the epoch, not after every batch."""
    num_pictures: int
    """Pictures in an epoch, over all processes."""
    position: int
    """Number, within its epoch, of the batch that comes next: where `start` would go on. A training batch of which no
    picture can be decoded is passed over, so this is not a count of what came."""
    bad_samples: list[BadSample]
    """What was left out so far."""

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """The batches of one epoch, from number `start` on. Ends whatever epoch was being read before."""
        ...

    def close(self) -> None:
        """Give back processes and memory. The loader cannot be used after it."""
        ...


def was_closed() -> VitscopeError:
    return VitscopeError("the loader is closed", fix="make a new one")


def was_given_up() -> VitscopeError:
    return VitscopeError("this epoch's batches were given up when another epoch was begun", fix="begin it again")
