"""How good a model is on one part of a data set: every picture once, none weighed more than another.

Each picture's figures stay on the device until the end, when the host reads them once and adds them up in float64. So
the result does not depend on how many pictures go through at once, beyond the rounding of the model's own arithmetic.

B pictures at once, K classes, N pictures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vitscope.core.errors import DataError, InputError, VitscopeError, expected
from vitscope.data.loaders.loader import Batch, Loader
from vitscope.models.modes import in_mode
from vitscope.train.memory import is_out_of_memory
from vitscope.train.precision import autocast

TOP = 5


@dataclass(frozen=True)
class Worst:
    """A picture the model is wrong about."""

    index: int
    """Its number in the source."""
    label: int
    predicted: int
    confidence: float
    """Probability of the predicted class."""
    loss: float


@dataclass(frozen=True)
class Evaluation:
    """What an evaluation found."""

    loss: float
    """Mean cross-entropy, without smoothing. NaN as soon as one picture's logits are not numbers."""
    accuracy: float
    """Share of the pictures whose largest logit is the label's; logits that are not numbers are wrong."""
    top5: float | None
    """Share whose label is among the five largest; only above five classes."""
    count: int
    confusion: Tensor
    """(K, K) int64 on the CPU: row the true class, column the predicted one. Pictures whose logits are not numbers have
    no predicted class and are in no cell."""
    worst: list[Worst]
    """The most confidently wrong, the most confident first."""
    batch: int
    """Pictures that went through at once; fewer than asked for where memory was short."""


class _Judged(NamedTuple):
    """What is kept of each picture, each (B,)."""

    indices: Tensor
    labels: Tensor
    predicted: Tensor
    """-1 where logits are not numbers."""
    confidences: Tensor
    losses: Tensor
    ranks: Tensor
    """Classes that come before the label's."""


def evaluate(
    model: nn.Module,
    loader: Loader,
    *,
    num_classes: int,
    dtype: torch.dtype | None = None,
    batch: int | None = None,
    worst: int = 16,
    can_halve: bool = True,
    stop: Callable[[], bool] | None = None,
    say: Callable[[str], None] | None = None,
) -> Evaluation | None:
    """Judge `model` by all pictures of an evaluation loader; None when `stop` says so between two batches.

    `dtype` bf16 or fp16 computes in that, losses in float32. `batch` is the most pictures that go through at once, by
    default the loader's batch. Where memory runs out it is halved, told to `say`, and the evaluation goes on; when even
    one picture does not fit it ends with an error; and at once where not `can_halve`, because other processes run the
    model with this one, batch by batch. The model comes back in the mode it was in.
    """
    judged: list[_Judged] = []
    at_once, largest = batch, 0
    with torch.no_grad(), in_mode(model, training=False):
        for full in loader.epoch(0):
            if stop is not None and stop():
                return None
            _refuse_mixed(full)
            start = 0
            while start < len(full.images):
                end = len(full.images) if at_once is None else start + at_once
                piece = Batch(*(part[start:end] for part in full))
                outcome = _attempt(model, piece, num_classes, dtype)
                if isinstance(outcome, _Judged):
                    judged.append(outcome)
                    start, largest = start + len(piece.images), max(largest, len(piece.images))
                else:
                    at_once = _fewer(piece.images, outcome, say, can_halve=can_halve)
    if not judged:
        raise DataError("there are no pictures to evaluate", fix="give a part of the data that has some")
    found = _Judged(*(torch.cat(column).cpu() for column in zip(*judged, strict=True)))
    return _summed_up(found, num_classes, worst, at_once or largest)


def _attempt(model: nn.Module, piece: Batch, num_classes: int, dtype: torch.dtype | None) -> _Judged | str:
    """The pictures judged, or what was said when memory ran out. Returned, not raised: an error under way would keep
    the memory of everything it passed through."""
    try:
        return _judge(model, piece, num_classes, dtype)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return str(error).partition("\n")[0]


def _judge(model: nn.Module, piece: Batch, num_classes: int, dtype: torch.dtype | None) -> _Judged:
    images, labels, indices = piece
    with autocast(images.device, None if dtype is torch.float32 else dtype):
        logits = model(images)
    if tuple(logits.shape) != (len(images), num_classes):
        raise InputError(expected("logits", f"({len(images)}, {num_classes})", tuple(logits.shape)), where="evaluate")
    logits = logits.float()
    is_number = logits.logsumexp(-1).isfinite()
    own = logits.gather(1, labels[:, None])
    # Equal logits are ranked by the class's number, so that five equal ones are not all at the top.
    before = torch.arange(num_classes, device=logits.device) < labels[:, None]
    ranks = ((logits > own) | ((logits == own) & before)).sum(-1)
    losses = F.cross_entropy(logits, labels, reduction="none")
    return _Judged(
        indices,
        labels,
        predicted=torch.where(is_number, logits.argmax(-1), -1),
        confidences=logits.softmax(-1).amax(-1),
        losses=torch.where(is_number, losses, torch.nan),
        ranks=torch.where(is_number, ranks, num_classes),
    )


def _fewer(images: Tensor, said: str, say: Callable[[str], None] | None, *, can_halve: bool) -> int:
    """Half as many pictures, or the end."""
    if images.device.type == "cuda":
        torch.cuda.empty_cache()  # what is kept in pieces of the old size serves nobody now
    count, device = len(images), images.device
    if count == 1:
        raise VitscopeError(
            f"not even one picture fits into the memory of {device} in evaluation",
            where=said,
            fix="free memory there, or take a smaller model, smaller pictures or another device",
        )
    if not can_halve:
        raise VitscopeError(
            f"{count:,} pictures at once are too many for the memory of {device} in evaluation",
            where=said,
            fix=f"continue with --resume --loop.eval-batch {count // 2}",
        )
    if say is not None:
        say(f"evaluation: {count:,} pictures at once are too many for the memory of {device}; now {count // 2:,}")
    return count // 2


def _summed_up(found: _Judged, num_classes: int, worst: int, batch: int) -> Evaluation:
    count = len(found.labels)
    seen = found.predicted >= 0
    cells = found.labels[seen] * num_classes + found.predicted[seen]
    confusion = torch.bincount(cells, minlength=num_classes**2).view(num_classes, num_classes)
    return Evaluation(
        loss=found.losses.double().mean().item(),
        accuracy=int((found.predicted == found.labels).sum()) / count,
        top5=int((found.ranks < TOP).sum()) / count if num_classes > TOP else None,
        count=count,
        confusion=confusion,
        worst=list(_most_confidently_wrong(found, worst)),
        batch=batch,
    )


def _most_confidently_wrong(found: _Judged, most: int) -> Iterator[Worst]:
    wrong = ((found.predicted != found.labels) & (found.predicted >= 0)).nonzero().flatten()
    # Stable, so that of equal ones the first in the data comes first.
    order = found.confidences[wrong].argsort(descending=True, stable=True)[:most]
    for place in wrong[order].tolist():
        yield Worst(
            index=int(found.indices[place]),
            label=int(found.labels[place]),
            predicted=int(found.predicted[place]),
            confidence=float(found.confidences[place]),
            loss=float(found.losses[place]),
        )


def _refuse_mixed(batch: Batch) -> None:
    if batch.labels.ndim != 1:
        raise InputError(
            expected("labels", "(B,) numbers, as an evaluation loader gives them", tuple(batch.labels.shape)),
            where="evaluate",
            fix="make the loader with training=False",
        )
