"""Whether a kernel of our own runs here: each is tried once for its sizes, by running it.

Triton compiles when a kernel first runs, and that fails on machines without a C compiler or Python's headers, or where
a card has too little room. What fails falls back to PyTorch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from importlib.util import find_spec

import torch
from torch import Tensor

HAS_TRITON = find_spec("triton") is not None

log = logging.getLogger("vitscope")


class Proof:
    """What was tried, and what came of it."""

    def __init__(self, what: str) -> None:
        self.what = what
        """What the kernels do, as the warning names it."""
        self.why_not: dict[Hashable, str | None] = {}
        """Device, dtype and sizes -> why it does not run there, or None where it does."""

    def runs(self, kernel: Hashable, like: Tensor, attempt: Callable[[], object]) -> bool:
        """Whether `kernel` runs where `like` is. `attempt` calls it on little, compiled as the real call will need it,
        so that nothing is done twice."""
        key = kernel, like.device, like.dtype
        if key not in self.why_not:
            if like.is_cuda and torch.cuda.is_current_stream_capturing():
                return False  # a CUDA graph would record the attempt; whoever warms up first never comes here
            why = _attempted(attempt)
            if why is not None and not any(self.why_not.values()):
                log.warning("%s falls back to PyTorch: our kernels do not run here (%s)", self.what, why)
            self.why_not[key] = why
        return self.why_not[key] is None


def _attempted(attempt: Callable[[], object]) -> str | None:
    try:
        attempt()
    except torch.OutOfMemoryError:
        raise  # says nothing about the kernel
    except Exception as error:
        return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"[:200]
    return None


def is_exported() -> bool:
    """What is exported runs where nobody knows our operators. The second question: torch.compile answers the first one
    with yes too (torch 2.11). So torch.export(strict=True), which traces as torch.compile does, is not seen."""
    return torch.compiler.is_exporting() and not torch.compiler.is_dynamo_compiling()
