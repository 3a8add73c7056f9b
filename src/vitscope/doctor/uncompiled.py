"""A patient as it was written: compiled code goes past hooks that were added after it was made, and would then show
checks that nothing runs and nothing changes."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TypeVar, cast

import torch
from torch import nn

M = TypeVar("M", bound="nn.Module | None")


def as_written(module: M) -> M:
    """The module inside what `torch.compile(module)` gives: the same parameters, by their own names."""
    while isinstance(inner := getattr(module, "_orig_mod", None), nn.Module):
        module = cast("M", inner)
    return module


@contextlib.contextmanager
def run_as_written() -> Iterator[None]:
    """Whatever was compiled (a model in place, a part of one, the owner's own step) runs uncompiled, and gradients are
    there also where the caller has turned them off."""
    with contextlib.ExitStack() as stack:
        # Not loaded: nothing was compiled yet, and loading takes seconds.
        if "torch._dynamo" in sys.modules:
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        stack.enter_context(torch.inference_mode(mode=False))
        stack.enter_context(torch.enable_grad())
        yield
