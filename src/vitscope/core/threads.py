"""How many threads torch computes with on the CPU, for a while."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def using_threads(count: int | None) -> Iterator[None]:
    """Inside it torch computes with `count` threads, with None as before."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(before if count is None else count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
