"""Pictures on their way to a model: decoded and cut by threads while the model is busy with the batch before.

Pillow decodes and resizes without Python's lock, so threads suffice, and nothing has to be copied between processes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import torch
from torch import Tensor

from vitscope.core.environment import usable_cpus
from vitscope.core.errors import expected
from vitscope.data.config import PreprocessConfig
from vitscope.data.config.data import PIXEL_LIMIT
from vitscope.data.decode import bad_image, decode_image
from vitscope.data.preprocess import normalise, to_pixels
from vitscope.infer.pictures import Given

AHEAD = 2
"""Batches that are prepared while one is with the model."""
Prepare = Callable[[Given], Tensor]
"""From a picture to (C, H, W): uint8 pixels still to be normalised, or floats that are not."""


@dataclass
class Prepared:
    """Some pictures, ready: those that could be read, and why the others could not."""

    places: list[int] = field(default_factory=list)
    """Of each image its number in the list."""
    images: list[Tensor] = field(default_factory=list)
    errors: dict[int, str] = field(default_factory=dict)


def prepare_for(config: PreprocessConfig, *, pixel_limit: int = PIXEL_LIMIT) -> Prepare:
    """The same road pictures took in evaluation."""

    def prepare(given: Given) -> Tensor:
        if isinstance(given.content, Tensor):
            return _as_prepared(given.content, config)
        return to_pixels(decode_image(given.content, in_chans=config.in_chans, pixel_limit=pixel_limit), config)

    return prepare


def stream(
    pictures: Sequence[Given], prepare: Prepare, *, batch_size: int, threads: int | None = None
) -> Iterator[Prepared]:
    """All pictures in order, `batch_size` at a time. What cannot be read takes part as an error."""
    with ThreadPoolExecutor(threads or usable_cpus()) as pool:
        waiting: deque[tuple[int, Future[Tensor | str]]] = deque()
        coming = enumerate(pictures)
        batch, taken = Prepared(), 0

        def fill() -> None:
            while len(waiting) < AHEAD * batch_size:
                following = next(coming, None)
                if following is None:
                    return
                place, given = following
                waiting.append((place, pool.submit(_attempt, prepare, given)))

        try:
            fill()
            while waiting:
                place, future = waiting.popleft()
                found = future.result()
                taken += 1
                if isinstance(found, str):
                    batch.errors[place] = found
                else:
                    batch.places.append(place)
                    batch.images.append(found)
                fill()
                if taken == batch_size or not waiting:
                    yield batch
                    batch, taken = Prepared(), 0
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def stacked(images: Sequence[Tensor], config: PreprocessConfig, device: torch.device, dtype: torch.dtype) -> Tensor:
    """(B, C, H, W) on the device. Pixels travel as bytes and are normalised there."""
    if all(image.dtype == torch.uint8 for image in images):
        return normalise(torch.stack(list(images)).to(device), config).to(dtype)
    ready = [image if image.is_floating_point() else normalise(image, config).to(image.device) for image in images]
    return torch.stack([image.to(device, dtype) for image in ready])


def _attempt(prepare: Prepare, given: Given) -> Tensor | str:
    try:
        return prepare(given)
    except Exception as error:  # one bad picture is told in its place; the others go on
        return bad_image(error).what


def _as_prepared(tensor: Tensor, config: PreprocessConfig) -> Tensor:
    wanted = (config.in_chans, *config.img_size)
    if tuple(tensor.shape) != wanted:
        raise ValueError(expected("a prepared tensor", f"{wanted}", tuple(tensor.shape)))
    return tensor
