"""The pictures by which ways are judged: prepared once, with their labels where they have some."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vitscope.core.errors import DataError
from vitscope.data.dataset import Dataset
from vitscope.infer.labelled import Part, from_all_over
from vitscope.infer.launched import Forward
from vitscope.infer.pictures import Given, Pictures, find_pictures
from vitscope.infer.predictor import Predictor
from vitscope.infer.stream import prepare_for, stacked, stream
from vitscope.train.classes import class_order


@dataclass(frozen=True)
class Sample:
    """`images` (N, C, H, W) in fp32 on the CPU. `labels` (N,) are numbers of the model's own classes."""

    images: Tensor
    labels: Tensor | None = None

    def __len__(self) -> int:
        return len(self.images)

    def spread(self, most: int) -> Sample:
        """At most so many of the pictures, from all over."""
        chosen = torch.from_numpy(from_all_over(len(self), most))
        return Sample(self.images[chosen], None if self.labels is None else self.labels[chosen])

    @torch.inference_mode()
    def logits(self, forward: Forward, *, batch_size: int, device: torch.device, dtype: torch.dtype) -> Tensor:
        """(N, K) in fp32 on the CPU."""
        parts = self.images.split(batch_size)
        return torch.cat([forward(part.to(device, dtype)).float().cpu() for part in parts])

    def accuracy(self, logits: Tensor) -> float | None:
        if self.labels is None:
            return None
        return self.right(logits).double().mean().item()

    def right(self, logits: Tensor) -> Tensor:
        """(N,) of bool: an answer that is not numbers is wrong. Only where there are labels."""
        return (logits.argmax(-1) == self.labels) & logits.isfinite().all(-1)


def sample_of_dataset(predictor: Predictor, dataset: Dataset, part: Part, *, most: int) -> tuple[Sample, list[str]]:
    """Labelled pictures spread over a part, at most so many; and what is wrong with others."""
    predictor.require_classes()
    order = class_order(predictor.model.labels, dataset.class_names, predictor.num_classes, where=dataset.source.place)
    rows = dataset.splits[part]
    rows = rows[from_all_over(len(rows), most)]
    given = [Given(dataset.source.where(int(row)), dataset.source.read(int(row))) for row in rows]
    images, places, bad = _prepared(predictor, given)
    labels = [order[label] for label in dataset.source.labels[rows[places]]]
    return Sample(images, torch.tensor(labels)), bad


def sample_of_pictures(predictor: Predictor, pictures: Pictures, *, most: int) -> tuple[Sample, list[str]]:
    """Pictures nobody named, spread over all that are given, at most so many; and what is wrong with others."""
    predictor.require_classes()
    given = find_pictures(pictures)
    images, _, bad = _prepared(predictor, [given[place] for place in from_all_over(len(given), most)])
    return Sample(images), bad


def _prepared(predictor: Predictor, given: Sequence[Given]) -> tuple[Tensor, list[int], list[str]]:
    images: list[Tensor] = []
    places: list[int] = []
    bad: list[str] = []
    for batch in stream(given, prepare_for(predictor.preprocessing), batch_size=predictor.batch_size):
        bad += [f"{given[place].name}: {reason}" for place, reason in batch.errors.items()]
        places += batch.places
        if batch.images:
            images.append(stacked(batch.images, predictor.preprocessing, torch.device("cpu"), torch.float32))
    if not images:
        raise DataError("none of the pictures can be read", where=(bad or [""])[0], fix="give other pictures")
    return torch.cat(images), places, bad
