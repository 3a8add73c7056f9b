"""How good features are: a data set's pictures go through the model once, then neighbours and linear probes are tried.

Layers, numbers of neighbours and learning rates are chosen on validation; the test pictures are asked once, about
what was chosen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from vitscope.core.errors import DataError, UsageError, expected
from vitscope.data.dataset import Dataset
from vitscope.data.splits import PARTS, TEST, TRAIN, VAL
from vitscope.infer.features.extract import features_of
from vitscope.infer.features.features import BadPicture, Features
from vitscope.infer.features.knn import GRID, TEMPERATURE, knn_accuracy
from vitscope.infer.features.layouts import VECTORS, Tokens
from vitscope.infer.features.pictures import in_set
from vitscope.infer.features.probe import LRS, Heads, default_epochs, judge_heads, train_heads
from vitscope.train.show.card import wilson_interval

if TYPE_CHECKING:
    from vitscope.infer.predictor import Predictor, Progress

ENOUGH_LAYERS = 4
"""The last so many are compared, where nobody says which."""


@dataclass(frozen=True)
class Labelled:
    """The features of a data set's three parts."""

    parts: Mapping[str, tuple[Mapping[str, Tensor], Tensor]]
    """train, val, test -> features by name (N, D), and labels (N,)."""
    num_classes: int
    bad: Sequence[BadPicture]

    def __getitem__(self, part: str) -> tuple[Mapping[str, Tensor], Tensor]:
        return self.parts[part]


@dataclass(frozen=True)
class Tried:
    """One choice, and how it did on validation."""

    feature: str
    setting: float
    """The number of neighbours, or the learning rate."""
    val_accuracy: float
    val_loss: float | None = None


@dataclass(frozen=True)
class Verdict:
    """All that was tried, the best of it, and how that did on test."""

    tried: Sequence[Tried]
    best: Tried
    test_accuracy: float | None
    """None where there are no test pictures."""
    test_interval: tuple[float, float] | None
    """95 %."""
    counts: Mapping[str, int]
    """Pictures of each part."""
    epochs: int | None = None
    heads: Heads | None = None
    """Of a probe, the head that was chosen, for the features as they are: (1, K, D)."""


def labelled_features(
    predictor: Predictor,
    dataset: Dataset,
    *,
    layers: int | Sequence[int] | None = -1,
    tokens: Tokens = "pooled",
    norm: bool = True,
    dtype: torch.dtype = torch.float32,
    batch_size: int | None = None,
    progress: Progress | None = None,
) -> Labelled:
    """Every picture of a data set once through the model, for all layers that are wanted."""
    if tokens not in VECTORS:
        raise UsageError(
            expected("tokens", f"one of {', '.join(VECTORS)}, one vector per picture", repr(tokens)),
            where="judging features",
        )
    dataset.require_trainable()
    numbers = np.concatenate([dataset.splits[part] for part in PARTS])
    names = [part for part in PARTS for _ in range(len(dataset.splits[part]))]
    found = features_of(
        predictor,
        in_set(dataset.source, numbers.tolist(), names),
        layers=layers,
        tokens=tokens,
        norm=norm,
        dtype=dtype,
        batch_size=batch_size,
        progress=progress,
    )
    told = Labelled({part: _part(found, part) for part in PARTS}, dataset.num_classes, found.bad)
    for part in (TRAIN, VAL):
        if not len(told[part][1]):
            raise DataError(
                f"no picture of {part} can be read",
                where=found.bad[0].path if found.bad else dataset.source.place,
                fix="`vitscope data` lists what is wrong with each",
            )
    return told


def judge_neighbours(
    labelled: Labelled,
    *,
    grid: Sequence[int] = GRID,
    temperature: float | None = TEMPERATURE,
    device: torch.device | str = "cpu",
) -> Verdict:
    """The training pictures vote on the others: number of neighbours and layer by validation."""
    (bank, labels), (asked, truth) = labelled[TRAIN], labelled[VAL]

    def accuracy(name: str, grid: Sequence[int], values: Tensor, truth: Tensor) -> dict[int, float]:
        return knn_accuracy(
            bank[name],
            labels,
            values,
            truth,
            grid=grid,
            temperature=temperature,
            num_classes=labelled.num_classes,
            device=device,
        )

    tried = [Tried(name, k, share) for name in bank for k, share in accuracy(name, grid, asked[name], truth).items()]
    best = max(tried, key=lambda one: one.val_accuracy)
    values, truth = labelled[TEST]
    share = accuracy(best.feature, [int(best.setting)], values[best.feature], truth) if len(truth) else {}
    return _verdict(labelled, tried, best, share.get(int(best.setting)))


def judge_probes(
    labelled: Labelled,
    *,
    lrs: Sequence[float] = LRS,
    epochs: int | None = None,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> Verdict:
    """A linear classifier for every layer and learning rate, trained on train, chosen on validation."""
    (values, labels), (asked, truth) = labelled[TRAIN], labelled[VAL]
    epochs = epochs or default_epochs(len(labels))
    tried: list[Tried] = []
    trained: dict[str, Heads] = {}
    for name in values:
        heads = train_heads(
            values[name],
            labels,
            num_classes=labelled.num_classes,
            lrs=lrs,
            epochs=epochs,
            seed=seed,
            device=device,
        )
        trained[name] = heads
        shares, losses = judge_heads(heads, asked[name], truth)
        for lr, share, loss in zip(lrs, shares.tolist(), losses.tolist(), strict=True):
            tried.append(Tried(name, lr, share, loss))
    best = max(tried, key=lambda one: (one.val_accuracy, -(one.val_loss or 0.0)))
    place = list(lrs).index(best.setting)
    heads = trained[best.feature]
    chosen = Heads(heads.weights[place : place + 1], heads.biases[place : place + 1])
    values, truth = labelled[TEST]
    share = judge_heads(chosen, values[best.feature], truth)[0].item() if len(truth) else None
    return _verdict(labelled, tried, best, share, epochs=epochs, heads=chosen)


def _part(found: Features, part: str) -> tuple[dict[str, Tensor], Tensor]:
    """Its features and labels."""
    if found.parts is None or found.labels is None:
        raise DataError("the pictures have no parts or no classes")
    rows = torch.tensor([place for place, own in enumerate(found.parts) if own == part], dtype=torch.int64)
    return {name: values[rows] for name, values in found.values.items()}, found.labels[rows]


def _verdict(
    labelled: Labelled,
    tried: Sequence[Tried],
    best: Tried,
    share: float | None,
    *,
    epochs: int | None = None,
    heads: Heads | None = None,
) -> Verdict:
    counts = {part: len(labelled[part][1]) for part in PARTS}
    interval = None if share is None else wilson_interval(round(share * counts[TEST]), counts[TEST])
    return Verdict(tried, best, share, interval, counts, epochs, heads)
