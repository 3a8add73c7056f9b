"""What a predictor says of the labelled pictures of a data set, in the data's order of classes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from vitscope.core.config import updated
from vitscope.data.config import NORMALISATIONS, PreprocessConfig
from vitscope.data.dataset import Dataset
from vitscope.data.loaders.choose import make_loader
from vitscope.infer.predictor import Predictor
from vitscope.train.classes import class_order

Part = Literal["train", "val", "test"]
SURE = 0.001
"""How unlikely it must be that one way of asking beats another by chance before anybody is told so."""
ENOUGH = 1000
"""Pictures the swap test looks at."""


@torch.inference_mode()
def labelled_logits(
    predictor: Predictor,
    dataset: Dataset,
    part: Part,
    *,
    preprocessing: PreprocessConfig | None = None,
    most: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Logits (N, K) and labels (N,) on the CPU, of all pictures of a part, or of `most` from all over it."""
    predictor.require_classes()
    dataset = _thinned(dataset, part, most)
    order = class_order(predictor.model.labels, dataset.class_names, predictor.num_classes, where=dataset.source.place)
    loader = make_loader(
        dataset,
        part,
        preprocess=preprocessing or predictor.preprocessing,
        training=False,
        device=predictor.device,
        batch_size=predictor.batch_size,
    )
    logits, labels = [], []
    try:
        for batch in loader.epoch(0):
            logits.append(predictor.logits(batch.images.to(predictor.dtype)).float().cpu()[:, order])
            labels.append(batch.labels.cpu())
    finally:
        loader.close()
    return torch.cat(logits), torch.cat(labels)


def _thinned(dataset: Dataset, part: Part, most: int | None) -> Dataset:
    """With fewer pictures in a part."""
    rows = dataset.splits[part]
    if most is None or len(rows) <= most:
        return dataset
    chosen = rows[from_all_over(len(rows), most)]
    return replace(dataset, splits=replace(dataset.splits, **{part: chosen}))


def from_all_over(count: int, most: int) -> np.ndarray:
    """Places of at most so many of `count`, evenly spread: folders come class by class.

    >>> from_all_over(7, 3).tolist()
    [0, 2, 4]
    """
    return np.linspace(0, count, min(most, count), endpoint=False, dtype=np.int64)


@dataclass(frozen=True)
class Swap:
    """How a model does when its pictures are normalised in another way."""

    name: str
    """`its own`, or the other normalisation's."""
    accuracy: float
    better: int
    """Pictures only this way gets right, and"""
    worse: int
    """those only its own way gets right."""
    chance: float
    """How likely at least so large a lead is by chance, if both are as good; 1 where there is no lead."""

    @property
    def is_better(self) -> bool:
        return self.chance < SURE


def swap_test(predictor: Predictor, dataset: Dataset, part: Part, *, most: int | None = ENOUGH) -> list[Swap]:
    """The model's own normalisation beside the usual ones, on the same pictures. Weights that came without their
    preprocessing, or with a wrong one, show here."""
    own = predictor.preprocessing
    logits, labels = labelled_logits(predictor, dataset, part, most=most)
    right = logits.argmax(-1) == labels
    found = [Swap("its own", right.double().mean().item(), 0, 0, 1.0)]
    for name, (mean, std) in {**NORMALISATIONS, "none": ((0.0,), (1.0,))}.items():
        fitted = [
            values if len(values) == own.in_chans else (sum(values) / len(values),) * own.in_chans
            for values in (mean, std)
        ]
        other = updated(own, mean=tuple(fitted[0]), std=tuple(fitted[1]))
        if other == own:
            continue
        logits, _ = labelled_logits(predictor, dataset, part, preprocessing=other, most=most)
        now = logits.argmax(-1) == labels
        better, worse = int((now & ~right).sum()), int((right & ~now).sum())
        found.append(Swap(name, now.double().mean().item(), better, worse, chance_of_lead(better, worse)))
    return found


def chance_of_lead(better: int, worse: int) -> float:
    """The sign test, one-sided: of the pictures two ways disagree on, how likely at least `better` are this side's.

    >>> round(chance_of_lead(3, 1), 4)
    0.3125
    """
    if better <= worse:
        return 1.0
    count = better + worse
    return sum(math.comb(count, k) for k in range(better, count + 1)) / 2**count
