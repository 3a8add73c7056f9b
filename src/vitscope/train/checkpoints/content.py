"""A state becomes the bytes of a checkpoint's files: equal states give equal bytes, and no NaN ever gets that far."""

from __future__ import annotations

import hashlib
import io
import json
import sys
from collections.abc import Mapping
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from vitscope.core import strict_json
from vitscope.core.errors import DivergedError, VitscopeError, expected

FORMAT = 1
_WHERE = "saving a checkpoint"


class CheckpointError(VitscopeError):
    """A checkpoint cannot be written, or cannot be trusted."""


class UnsavableError(VitscopeError):
    """A state holds something that no checkpoint can hold: making room on the disk does not help."""


class NotFiniteError(DivergedError):
    """A state with NaN or infinity in it is never saved."""


def model_bytes(model: Mapping[str, Tensor]) -> bytes:
    """The safetensors file of `model`. Its header carries nothing of time or place."""
    return save({name: _saved(tensor, f"model/{name}") for name, tensor in model.items()}, metadata={"format": "pt"})


def trainer_bytes(trainer: Mapping[str, Any]) -> memoryview:
    """The trainer.pt of `trainer`."""
    buffer = io.BytesIO()
    torch.save(_plain(trainer, "trainer"), buffer)
    return buffer.getbuffer()


def meta_bytes(step: int, meta: Mapping[str, Any], files: Mapping[str, bytes | memoryview]) -> bytes:
    """The meta.json over `files`: sizes, sha256, and the caller's `meta`."""
    sums = {name: {"bytes": len(content), "sha256": sha256(content)} for name, content in files.items()}
    described = {"format": FORMAT, "step": step, "files": sums, "meta": strict_json.encode(meta)}
    try:
        return (json.dumps(described, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()
    except (TypeError, ValueError) as error:
        raise UnsavableError(f"meta is not plain data: {error}", where=_WHERE, fix="use numbers and text") from None


def sha256(content: bytes | memoryview) -> str:
    return hashlib.sha256(content).hexdigest()


def _plain(value: Any, name: str) -> Any:
    """A copy made of tensors on the CPU and plain values, the only things that load again without running code."""
    if isinstance(value, Tensor):
        return _saved(value, name)
    if isinstance(value, Mapping):
        return {_plain_key(key, name): _plain(item, f"{name}/{key}") for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_plain(item, f"{name}/{index}") for index, item in enumerate(value))
    if type(value) is str:
        return sys.intern(value)  # pickle writes one object once: equal texts must be one, or equal states differ
    if value is None or type(value) in (bool, int, float):  # not a subclass: numpy's float64 is a float too
        return value
    raise UnsavableError(
        expected(name, "a tensor, number, text, None, list or dict", type(value).__name__),
        where=_WHERE,
        fix="turn it into plain values first",
    )


def _plain_key(key: Any, name: str) -> Any:
    if type(key) in (str, int):
        return _plain(key, name)
    raise UnsavableError(expected(f"a key of {name}", "text or an integer", repr(key)), where=_WHERE, fix="use text")


def require_finite(tensors: Mapping[str, Tensor], what: str = "model") -> None:
    """Refuse tensors with NaN or infinity in them, by name."""
    for name, tensor in tensors.items():
        _refuse_not_finite(tensor.detach(), f"{what}/{name}")


def _saved(tensor: Tensor, name: str) -> Tensor:
    """A contiguous copy on the CPU: of a view only what it shows, of shared memory one's own."""
    tensor = tensor.detach()
    _refuse_not_finite(tensor, name)
    return tensor.to("cpu", copy=True, memory_format=torch.contiguous_format)


def _refuse_not_finite(tensor: Tensor, name: str) -> None:
    if not tensor.is_floating_point() and not tensor.is_complex():
        return
    finite = torch.isfinite(tensor)
    if not bool(finite.all()):
        bad = tensor.numel() - int(finite.sum())
        raise NotFiniteError(
            f"{name}: {bad:,} of {tensor.numel():,} values are NaN or infinite; such a state is not saved",
            where=_WHERE,
            fix="go back to the checkpoint before, and lower the learning rate (--lr) or clip gradients",
        )
