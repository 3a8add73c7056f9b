"""How a forward pass is launched: kernel by kernel, through `torch.compile`, as one CUDA graph, or both.

All but the first want batches of one size. Fewer pictures are filled up, and what came of the filling is dropped.
"""

from __future__ import annotations

import itertools
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, get_args

import torch
from torch import Tensor

from vitscope.core.cuda_graph import record
from vitscope.core.environment import why_no_compiler
from vitscope.core.errors import UsageError, VitscopeError, expected

Launch = Literal["eager", "compiled", "graph", "compiled_graph"]
LAUNCHES: tuple[Launch, ...] = get_args(Launch)
Forward = Callable[[Tensor], Tensor]
"""From images (B, C, H, W) to something of each, (B, ...)."""
_NUMBERS = itertools.count()


def launched(forward: Forward, launch: Launch, *, device: torch.device, batch_size: int) -> Forward:
    """`forward`, launched that way, for up to `batch_size` pictures at once."""
    refuse_launch(launch, device)
    if launch == "eager":
        return forward
    once = _compiled(forward) if launch.startswith("compiled") else forward
    fixed = Captured(once) if launch.endswith("graph") else once

    def filled_up(images: Tensor) -> Tensor:
        count = len(images)
        if count > batch_size:
            return torch.cat([filled_up(part) for part in images.split(batch_size)])
        if count < batch_size:
            images = torch.cat([images, images.new_zeros(batch_size - count, *images.shape[1:])])
        return fixed(images)[:count]

    return filled_up


def _compiled(forward: Forward) -> Forward:
    """Under a name of its own: torch counts what it compiles by the place of the code, and stops after a few there."""

    def ask(images: Tensor) -> Tensor:
        return forward(images)

    ask.__code__ = ask.__code__.replace(co_name=f"ask_{next(_NUMBERS)}")
    compiled = torch.compile(ask, dynamic=False)
    is_first = True

    def quietly(images: Tensor) -> Tensor:
        nonlocal is_first
        if not is_first:
            return compiled(images)
        is_first = False
        with _without_asides():  # it is now that it compiles
            return compiled(images)

    return quietly


@contextmanager
def _without_asides() -> Iterator[None]:
    """What torch's compiler says to those who write tensor types and extensions means nothing to who asks a model: that
    torchao's 8 bits are not kept in its cache, and that CUDA is installed where there is no GPU. All else is heard."""
    logger = logging.getLogger("torch.utils.cpp_extension")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"\w+ does not implement _stable_hash_for_caching", UserWarning)
        logger.addFilter(_is_no_aside)
        try:
            yield
        finally:
            logger.removeFilter(_is_no_aside)


def _is_no_aside(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith("No CUDA runtime is found")


def refuse_launch(launch: str, device: torch.device) -> None:
    """An error where `device` cannot do it, or nobody can."""
    if launch not in LAUNCHES:
        raise UsageError(expected("launch", f"one of {', '.join(LAUNCHES)}", launch), where="how a model is launched")
    if launch.endswith("graph") and device.type != "cuda":
        other = "compiled" if launch == "compiled_graph" else "eager"
        raise UsageError(f"'{device.type}' has no CUDA graphs", where=f"launch '{launch}'", fix=f"take '{other}'")
    missing = why_no_compiler(device.type) if launch.startswith("compiled") else None
    if missing is not None:
        raise VitscopeError(
            f"torch.compile cannot work here: {missing}",
            where=f"launch '{launch}' on {device}",
            fix="install one (on Debian or Ubuntu, apt-get install g++), or launch eager",
        )


class Captured:
    """A forward pass as a CUDA graph, recorded at the first call, for images of just that shape."""

    def __init__(self, forward: Forward) -> None:
        self.forward = forward
        self._graph: torch.cuda.CUDAGraph | None = None
        self._images: Tensor
        self._answer: Tensor

    def __call__(self, images: Tensor) -> Tensor:
        """The answer is the caller's to keep: the next call does not write over it."""
        if self._graph is None:
            with torch.inference_mode(False):  # so that it can be written to inside inference mode and outside
                self._images = torch.empty_like(images).copy_(images)
            self._graph, self._answer = record(lambda: self.forward(self._images), images.device)
        self._images.copy_(images)
        self._graph.replay()
        return self._answer.clone()
