"""Weights written to a folder: one file, or several with an index when they are too large for one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from vitscope.core.dtypes import type_name
from vitscope.core.errors import ConfigError, VitscopeError, expected
from vitscope.core.files import write_json
from vitscope.weights.place import flush

WEIGHTS = "model.safetensors"
INDEX = f"{WEIGHTS}.index.json"
SHARD = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")
SHARD_BYTES = 5_000_000_000
"""Above this the hub, too, wants several files."""
WRITABLE = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


def is_weights(name: str) -> bool:
    """Whether a file of a model folder, by its name, is part of its weights."""
    return name in (WEIGHTS, INDEX) or SHARD.fullmatch(name) is not None


def write_weights(
    tensors: Mapping[str, Tensor], folder: Path, *, dtype: torch.dtype | None = None, shard_bytes: int = SHARD_BYTES
) -> None:
    """Into a folder that has no weights yet. Only the tensors of one file are held twice while it is written."""
    refuse_shard_bytes(shard_bytes)
    refuse_dtype(dtype)
    parts = _parts(tensors, dtype, shard_bytes)
    if len(parts) == 1:
        _write({name: _ready(name, tensors[name], dtype) for name in parts[0]}, folder / WEIGHTS)
        return
    homes: dict[str, str] = {}
    for number, names in enumerate(parts, start=1):
        home = f"model-{number:05}-of-{len(parts):05}.safetensors"
        _write({name: _ready(name, tensors[name], dtype) for name in names}, folder / home)
        homes |= dict.fromkeys(names, home)
    total = sum(_bytes(tensor, dtype) for tensor in tensors.values())
    write_json(folder / INDEX, {"metadata": {"total_size": total}, "weight_map": homes})


def refuse_dtype(dtype: torch.dtype | None, *, where: str = "save_model(..., dtype=...)") -> None:
    if dtype is not None and dtype not in WRITABLE:
        known = ", ".join(str(one) for one in WRITABLE)
        raise ConfigError(
            expected("dtype", f"one of {known}", repr(dtype)),
            where=where,
            fix="give torch's own, such as torch.bfloat16",
        )


def cast_model(model: nn.Module, dtype: torch.dtype) -> str | None:
    """The model in another type, never with infinities that were numbers; in words, what was cast, if anything."""
    floats = {name: tensor for name, tensor in model.state_dict().items() if tensor.is_floating_point()}
    others = {tensor.dtype for tensor in floats.values()} - {dtype}
    for name, tensor in floats.items():
        if tensor.dtype != dtype:
            cast(name, tensor, dtype)
    model.to(dtype)
    return f"numbers cast from {' and '.join(sorted(map(type_name, others)))} to {type_name(dtype)}" if others else None


def refuse_shard_bytes(shard_bytes: int) -> None:
    if shard_bytes <= 0:
        raise ConfigError(
            expected("shard_bytes", "a positive number of bytes", shard_bytes), where="save_model(..., shard_bytes=...)"
        )


def _parts(tensors: Mapping[str, Tensor], dtype: torch.dtype | None, shard_bytes: int) -> list[list[str]]:
    """Names in the model's own order, cut where the next tensor would make a file too large."""
    parts: list[list[str]] = [[]]
    filled = 0
    for name, tensor in tensors.items():
        size = _bytes(tensor, dtype)
        if parts[-1] and filled + size > shard_bytes:
            parts.append([])
            filled = 0
        parts[-1].append(name)
        filled += size
    return parts


def _bytes(tensor: Tensor, dtype: torch.dtype | None) -> int:
    kind = dtype if dtype is not None and tensor.is_floating_point() else tensor.dtype
    return tensor.numel() * kind.itemsize


def _ready(name: str, tensor: Tensor, dtype: torch.dtype | None) -> Tensor:
    """A contiguous copy, as safetensors refuses views and shared memory, in the type asked for."""
    tensor = tensor.detach()
    if dtype is None or not tensor.is_floating_point() or tensor.dtype == dtype:
        return tensor.cpu().contiguous().clone()
    return cast(name, tensor, dtype)


def cast(name: str, tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """In another type, in the processor's memory; never with infinities that were numbers."""
    found = tensor.to("cpu", dtype, copy=True).contiguous()
    if tensor.isfinite().all() and not found.isfinite().all():
        raise VitscopeError(
            f"{name} holds numbers up to {tensor.abs().max().item():.3g}, more than {dtype} can",
            fix="take torch.bfloat16 or torch.float32",
        )
    return found


def _write(tensors: dict[str, Tensor], path: Path) -> None:
    path.touch()
    mode = path.stat().st_mode  # as the umask says; safetensors keeps its files to their owner
    save_file(tensors, path, metadata={"format": "pt"})
    path.chmod(mode)
    flush(path)
