"""Work on a GPU recorded once as a CUDA graph, to be launched again as a whole.

torch takes the current device where nobody names one, and a GPU that was chosen by number (`cuda:1`) need not be it:
recorded there, the graph would be empty. So the device is named throughout.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import torch

T = TypeVar("T")
WARM_UPS = 3  # as torch's own graphs: libraries choose their kernels and workspaces in the first calls


def record(work: Callable[[], T], device: torch.device, *, pool: Any = None) -> tuple[torch.cuda.CUDAGraph, T]:
    """`work` as a graph, and where its replays leave their result. It is called a few times before."""
    with torch.cuda.device(device):
        warm_up, capture = _streams(index_of(device))
        warm_up.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(warm_up):
            for _ in range(WARM_UPS):
                work()
        torch.cuda.current_stream().wait_stream(warm_up)
        graph = torch.cuda.CUDAGraph()
        # Other threads (the one that pins memory for the worker loader) go on calling CUDA meanwhile.
        with torch.cuda.graph(graph, pool=pool, stream=capture, capture_error_mode="thread_local"):
            result = work()
    return graph, result


def index_of(device: torch.device) -> int:
    return torch.cuda.current_device() if device.index is None else device.index


@functools.cache
def _streams(index: int) -> tuple[torch.cuda.Stream, torch.cuda.Stream]:
    """The same two for every recording on a GPU: cuBLAS keeps 64 MB for each stream it was ever used on."""
    return torch.cuda.Stream(index), torch.cuda.Stream(index)
