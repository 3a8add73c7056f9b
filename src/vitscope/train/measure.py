"""A saved model on one part of a data set, its classes brought into the data's order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from vitscope.core.device import pick_device
from vitscope.core.errors import DataError, UsageError, VitscopeError
from vitscope.data.config import DataConfig, half_normalised
from vitscope.data.dataset import open_dataset
from vitscope.data.loaders.choose import make_loader
from vitscope.models.config import pair
from vitscope.models.variants import is_classifier
from vitscope.train.evaluate import Evaluation, evaluate
from vitscope.weights.load import load_model

TRAIN_ON_THESE = "give data with the model's classes, or train on these: `vitscope train --from MODEL --data NAME`"


def measure(
    folder: Path,
    data: DataConfig,
    part: Literal["train", "val", "test"],
    *,
    batch_size: int,
    device: str = "auto",
    say: Callable[[str], None] | None = None,
) -> tuple[Evaluation, tuple[str, ...]]:
    """What the model in a folder gets right, in float32, and the names of the classes, in the data's order."""
    place = pick_device(device)
    model = load_model(folder)
    if not is_classifier(model.config) or model.num_classes == 0:
        raise UsageError("the model has no classes", where=str(folder), fix="give a classifier")
    dataset = open_dataset(data)
    order = class_order(model.labels, dataset.class_names, model.num_classes, where=dataset.source.place)
    preprocess = model.preprocessing or half_normalised(pair(model.config.img_size), model.config.in_chans)
    loader = make_loader(dataset, part, preprocess=preprocess, training=False, device=place, batch_size=batch_size)
    judged = nn.Sequential(model, _Reordered(order)).to(place)
    try:
        found = evaluate(judged, loader, num_classes=model.num_classes, worst=0, say=say)
    finally:
        loader.close()
    if found is None:
        raise VitscopeError("the evaluation was stopped", where=str(folder), fix="start it again")
    return found, dataset.class_names


def class_order(labels: Sequence[str] | None, names: Sequence[str], num_classes: int, *, where: str) -> list[int]:
    """For each class of the data, its number in the model. Names decide where both have names, numbers elsewhere."""
    if len(names) != num_classes:
        raise DataError(
            f"the model tells {num_classes:,} classes apart, the data have {len(names):,}",
            where=where,
            fix=TRAIN_ON_THESE,
        )
    numbers = list(range(num_classes))
    if labels is None or list(labels) == list(names):
        return numbers
    if sorted(labels) == sorted(names) and len({*names}) == num_classes:
        return [list(labels).index(name) for name in names]
    if [str(number) for number in numbers] in (list(labels), list(names)):  # nobody gave them names
        return numbers
    strange = [name for name in names if name not in labels] or list(names)
    known = ", ".join(labels[:5]) + (", ..." if num_classes > 5 else "")
    raise DataError(
        f"the classes are others: the model does not know '{strange[0]}'",
        where=f"{where}; the model's are {known}",
        fix=TRAIN_ON_THESE,
    )


class _Reordered(nn.Module):
    """Logits (B, K) in another order of classes."""

    order: Tensor

    def __init__(self, order: Sequence[int]) -> None:
        super().__init__()
        self.register_buffer("order", torch.tensor(order))

    def forward(self, logits: Tensor) -> Tensor:
        return logits[:, self.order]
