"""Which layers suffer from 8 bits: each alone is rounded, and what that does to the answers is measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from vitscope.core.dtypes import usual_dtype
from vitscope.infer.cheaper.dtypes import Dtype, in_dtype, linear_layers, quantise
from vitscope.infer.cheaper.sample import Sample
from vitscope.models.model import VisionModel

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Sensitivity:
    """What rounding one layer does."""

    layer: str
    divergence: float
    """Mean Kullback-Leibler divergence of the probabilities from those of floats, in nats."""
    agreement: float
    """Share of pictures with the same first class."""
    accuracy_change: float | None
    """Against floats, on labelled pictures; negative is worse."""


def sensitivities(
    model: VisionModel,
    sample: Sample,
    dtype: Dtype,
    *,
    device: torch.device,
    batch_size: int,
    progress: Progress | None = None,
) -> list[Sensitivity]:
    """Of every linear layer, the most sensitive first. `model` stays as it is."""
    around = usual_dtype(device)
    asked = deepcopy(model).to(device, around).eval()

    def logits() -> Tensor:
        return sample.logits(asked, batch_size=batch_size, device=device, dtype=around)

    plain = logits()
    accuracy = sample.accuracy(plain)
    found = []
    names = linear_layers(asked)
    for number, name in enumerate(names):
        with _rounded(asked, name, dtype):
            told = logits()
        now = sample.accuracy(told)
        change = None if now is None or accuracy is None else now - accuracy
        found.append(Sensitivity(name, divergence(plain, told), agreement(plain, told), change))
        if progress is not None:
            progress(number + 1, len(names))
    return sorted(found, key=lambda one: (-one.divergence, names.index(one.layer)))


def layers_to_keep(
    model: VisionModel,
    sample: Sample,
    dtype: Dtype,
    ranked: Sequence[Sensitivity],
    *,
    at_least: float,
    device: torch.device,
    batch_size: int,
) -> tuple[tuple[str, ...], float]:
    """The fewest of the most sensitive layers that must stay floats so that `at_least` this share of answers is the
    same, found by halving; and that share. All of them where fewer do not suffice."""
    plain_model, kind = in_dtype(deepcopy(model), torch.float32, device)
    plain = sample.logits(plain_model, batch_size=batch_size, device=device, dtype=kind)
    del plain_model
    names = [one.layer for one in ranked]

    def share_with(count: int) -> float:
        asked, around = in_dtype(model, dtype, device, keep_float=names[:count])
        return agreement(plain, sample.logits(asked, batch_size=batch_size, device=device, dtype=around))

    measured = {0: share_with(0)}
    if measured[0] >= at_least:
        return (), measured[0]
    too_few, enough = 0, len(names)
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        measured[middle] = share_with(middle)
        if measured[middle] >= at_least:
            enough = middle
        else:
            too_few = middle
    if enough not in measured:
        measured[enough] = share_with(enough)
    return tuple(names[:enough]), measured[enough]


def agreement(plain: Tensor, other: Tensor) -> float:
    """Share of rows whose largest number is in the same place; a row that is not numbers agrees with nothing."""
    return ((plain.argmax(-1) == other.argmax(-1)) & other.isfinite().all(-1)).double().mean().item()


def divergence(plain: Tensor, other: Tensor) -> float:
    """Mean over rows of KL(plain, other); infinite where `other` is not numbers."""
    if not other.isfinite().all():
        return float("inf")
    first, second = plain.double().log_softmax(-1), other.double().log_softmax(-1)
    return (first.exp() * (first - second)).sum(-1).mean().item()


@contextmanager
def _rounded(model: nn.Module, name: str, dtype: Dtype) -> Iterator[None]:
    """One layer of `model` in 8 bits, for a while."""
    parent_name, _, leaf = name.rpartition(".")
    parent = model.get_submodule(parent_name)
    layer = parent.get_submodule(leaf)
    holder = nn.ModuleDict({"layer": deepcopy(layer)})
    quantise(holder, dtype, {"layer"})
    setattr(parent, leaf, holder["layer"])
    try:
        yield
    finally:
        setattr(parent, leaf, layer)
