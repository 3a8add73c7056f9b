"""Which device to compute on: the best there is, the one asked for, or a refusal that names what there is."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from vitscope.core.errors import UsageError
from vitscope.core.suggest import did_you_mean

if TYPE_CHECKING:
    import torch

_KINDS = ("auto", "cpu", "cuda", "mps")
_SYNONYMS = {"gpu": "cuda", "nvidia": "cuda", "rocm": "cuda", "metal": "mps"}


def pick_device(wish: str = "auto") -> torch.device:
    """`auto` (cuda, else mps, else cpu), `cpu`, `cuda`, `cuda:N` or `mps`."""
    import torch

    match = re.fullmatch(r"(auto|cpu|mps|cuda)|cuda:([0-9]+)", wish.strip().lower())
    if match is None:
        raise UsageError(
            f"unknown device '{wish}'",
            where=f"this machine has: {', '.join(available_devices())}",
            fix=did_you_mean(wish, _KINDS, _SYNONYMS) or "give auto, cpu, cuda, cuda:N or mps",
        )
    available = available_devices()
    device = match[0] if match[2] is None else f"cuda:{int(match[2])}"
    if device == "auto":
        device = next(kind for kind in ("cuda", "mps", "cpu") if kind in available)
    if device not in available:
        without_cuda = device.startswith("cuda") and torch.version.cuda is None and torch.version.hip is None
        raise UsageError(
            f"device '{device}' cannot be used"
            + (f": torch {torch.__version__} is built without CUDA" if without_cuda else ""),
            where=f"this machine has: {', '.join(available)}",
            fix=f"use --device {available[0]}, or --device auto for the best there is",
        )
    return torch.device(device)


def cpu_has_bf16() -> bool | None:
    """Whether this machine's CPU multiplies bf16 numbers itself (AVX512-BF16, AMX); elsewhere they are slower than
    fp32. None where torch (before 2.13) cannot tell."""
    import torch

    if not hasattr(torch.cpu, "get_capabilities"):
        return None
    found = torch.cpu.get_capabilities()
    return bool(found.get("avx512_bf16") or found.get("amx_bf16"))


def available_devices() -> list[str]:
    """Every name `pick_device` accepts here, the best first: ['cuda', 'cuda:0', 'cpu']."""
    import torch

    cuda = torch.cuda.is_available()
    return [
        *(["cuda"] if cuda else []),
        *(f"cuda:{index}" for index in range(torch.cuda.device_count() if cuda else 0)),
        *(["mps"] if torch.backends.mps.is_available() else []),
        "cpu",
    ]
