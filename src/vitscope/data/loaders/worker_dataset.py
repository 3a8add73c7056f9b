"""What a worker process does: read, decode and vary the pictures of one batch.

A worker keeps nothing from batch to batch: what it is sent, `Wanted`, says everything its answer, `Pixels`, depends on.
B pictures were wanted, b of them could be decoded.
"""

from __future__ import annotations

import signal
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from PIL.Image import Image
from torch import Tensor
from torch.utils.data import Dataset

from vitscope.core.seed import derive_seed
from vitscope.data.decode import BadImageError, bad_image, decode_image
from vitscope.data.loaders.loader import AUGMENT, BadSample
from vitscope.data.sources.source import Source, SourceLostError
from vitscope.data.transforms.picture import PictureTransform


class Wanted(NamedTuple):
    """The pictures of a batch, as they are sent to a worker."""

    epoch: int
    indices: list[int]
    """The pictures' numbers in their source."""
    copies: list[int]
    """Which variation of each."""
    mirrored: list[bool]


class Pixels(NamedTuple):
    """What a worker made of them."""

    pixels: Tensor
    """(b, C, H, W) uint8."""
    kept: Tensor
    """(b,) the places within the batch of those that could be decoded."""
    bad: list[BadSample]
    """The others."""


class PictureDataset(Dataset[Pixels]):
    """Batches of uint8 pixels, each a function of (seed, epoch, indices, copies) alone."""

    def __init__(self, source: Source, transform: PictureTransform, *, seed: int, pixel_limit: int) -> None:
        self.source = source
        self.transform = transform
        self.seed = seed
        self.pixel_limit = pixel_limit

    def __getitems__(self, wanted: Wanted) -> Pixels:
        """The whole batch at once: its pixels are written where they are sent from, without being stacked."""
        config = self.transform.preprocess
        pixels = torch.empty(len(wanted.indices), config.in_chans, *config.img_size, dtype=torch.uint8)
        kept: list[int] = []
        bad: list[BadSample] = []
        with _own_draws(self.transform.is_random):
            for place, (index, copy, mirrored) in enumerate(
                zip(wanted.indices, wanted.copies, wanted.mirrored, strict=True)
            ):
                try:
                    picture = self._picture(index)
                except BadImageError as error:
                    bad.append(BadSample(index, error.where or self.source.where(index), error.what))
                    continue
                if self.transform.is_random:
                    # Not torch.manual_seed: that would seed the GPUs of the main process too.
                    torch.default_generator.manual_seed(derive_seed(self.seed, AUGMENT, wanted.epoch, index, copy))
                pixels[len(kept)] = self.transform(picture, mirrored=mirrored)
                kept.append(place)
        return Pixels(
            pixels[: len(kept)] if bad else pixels,
            torch.tensor(kept, dtype=torch.int64),
            bad,
        )

    def _picture(self, index: int) -> Image:
        """Decoded. Only what is wrong with the picture is caught: a mistake in a transform must come out as itself."""
        try:
            stored = self.source.read(index)
            return decode_image(stored, in_chans=self.transform.preprocess.in_chans, pixel_limit=self.pixel_limit)
        except SourceLostError:
            raise
        except Exception as error:
            raise bad_image(error, where=self.source.where(index)) from None


def as_it_is(batch: Any) -> Any:
    """In place of collating: the batch is whole already."""
    return batch


def ignore_ctrl_c(worker: int) -> None:
    """A terminal sends SIGINT to all; the main process ends the workers when it ends.

    If the signal finds it in the middle of taking a batch over, it hangs up on the worker: no news for anyone.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.excepthook = _tell_unless_hung_up


def _tell_unless_hung_up(
    kind: type[BaseException], error: BaseException, traceback: types.TracebackType | None
) -> None:
    if not issubclass(kind, ConnectionError | EOFError):
        sys.__excepthook__(kind, error, traceback)


@contextmanager
def _own_draws(is_random: bool) -> Iterator[None]:
    """Without workers pictures are varied in the main process, whose own draws must go on as if nothing had been."""
    if not is_random:
        yield
        return
    state = torch.get_rng_state()
    try:
        yield
    finally:
        torch.set_rng_state(state)
