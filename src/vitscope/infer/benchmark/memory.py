"""How much memory a call takes at its peak: on a GPU what torch allocates, on a CPU what the process holds more."""

from __future__ import annotations

import ctypes
import gc
import sys
from pathlib import Path

import torch

from vitscope.infer.benchmark.timing import Call

_FORGET_PEAK = "5"  # written to /proc/self/clear_refs; see proc(5)


def peak_memory_bytes(call: Call, device: torch.device) -> int | None:
    """Of a warm call. On a GPU all that is allocated at the peak, the model and others' too; on a CPU, where the
    system tells (Linux), only what the call takes beyond what is held before it. None elsewhere."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        for _ in range(2):
            call()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device)
    if device.type != "cpu" or not sys.platform.startswith("linux"):
        return None
    gc.collect()
    _give_back()
    try:
        Path("/proc/self/clear_refs").write_text(_FORGET_PEAK, encoding="ascii")
        before = _held("VmRSS")
        call()
        return max(0, _held("VmHWM") - before)
    except OSError:  # a container may forbid it
        return None


def _held(what: str) -> int:
    """Bytes, by a line of /proc/self/status."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{what}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"no {what}")


def _give_back() -> None:
    """What the allocator keeps for later would be taken for memory the call needs not."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's
    if trim is not None:
        trim(0)
