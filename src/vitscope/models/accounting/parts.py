"""Parameters by part: one row for each module that owns some, alike blocks folded into one row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from torch import nn

from vitscope.models.fold import fold_alike


@dataclass(frozen=True)
class Part:
    """A module's own parameters, or a bare parameter of the model (a token, a table)."""

    name: str
    shape: tuple[int, ...]
    """Shape of the weight."""
    weights: int
    biases: int
    macs: int
    """Multiply-adds for one image."""
    times: int = 1
    """How many alike parts this row stands for; the numbers are of one."""

    @property
    def parameters(self) -> int:
        return self.weights + self.biases


def list_parts(model: nn.Module, macs: Mapping[str, int] | None = None) -> list[Part]:
    """All parts in the order of the modules. Every parameter is in exactly one; so is every multiply-add."""
    parts: list[Part] = []
    _list_below(model, "", dict(macs or {}), parts)
    return parts


def _list_below(module: nn.Module, name: str, macs: dict[str, int], parts: list[Part]) -> None:
    own = dict(module.named_parameters(recurse=False))
    weight = own.pop("weight", None)
    if weight is not None:
        biases = sum(parameter.numel() for parameter in own.values())
        parts.append(Part(name, tuple(weight.shape), weight.numel(), biases, macs.pop(name, 0)))
        return
    for leaf, parameter in own.items():
        parts.append(Part(f"{name}.{leaf}".lstrip("."), tuple(parameter.shape), parameter.numel(), 0, 0))
    for leaf, child in module.named_children():
        _list_below(child, f"{name}.{leaf}".lstrip("."), macs, parts)
    if macs.get(name):  # work between the children
        what = "q k^T, weights v" if name.endswith("attn") else "own work"
        parts.append(Part(f"{name} ({what})".lstrip(), (), 0, 0, macs[name]))


def fold_parts(parts: Sequence[Part]) -> list[Part]:
    """Alike blocks become one row: `blocks.0-11.attn.qkv`, times 12."""
    folded = fold_alike(parts, lambda part: (part.shape, part.weights, part.biases, part.macs))
    return [replace(part, name=name, times=times) for part, name, times in folded]
