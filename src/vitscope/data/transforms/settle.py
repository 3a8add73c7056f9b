"""A wall in the compiled graph.

torch's compiler likes to compute small things again wherever they are used. A picture's draws are small, but used by
each of its pixels: without a wall between the two, the hash of a key would be worked out thousands of times, and the
kernels would take minutes to compile.
"""

from __future__ import annotations

import torch
from torch import Tensor


def settled(values: Tensor) -> Tensor:
    """The same values. While compiling: as they were worked out once, in memory."""
    return _copied(values) if torch.compiler.is_compiling() else values


@torch.library.custom_op("vitscope::settled", mutates_args=())
def _copied(values: Tensor) -> Tensor:
    return values.clone()


@_copied.register_fake
def _(values: Tensor) -> Tensor:
    return torch.empty_like(values)
