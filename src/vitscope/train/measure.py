"""A saved model on one part of a data set, its classes brought into the data's order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from vitscope.core.device import pick_device
from vitscope.core.errors import UsageError, VitscopeError
from vitscope.data.config import DataConfig, half_normalised
from vitscope.data.dataset import open_dataset
from vitscope.data.loaders.choose import make_loader
from vitscope.models.config import pair
from vitscope.models.variants import is_classifier
from vitscope.train.classes import class_order, said_of_numbers
from vitscope.train.evaluate import Evaluation, evaluate
from vitscope.weights.load import load_model


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
    by_number = said_of_numbers(model.labels, dataset.class_names)
    if say is not None and by_number is not None:
        say(by_number)
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


class _Reordered(nn.Module):
    """Logits (B, K) in another order of classes."""

    order: Tensor

    def __init__(self, order: Sequence[int]) -> None:
        super().__init__()
        self.register_buffer("order", torch.tensor(order))

    def forward(self, logits: Tensor) -> Tensor:
        return logits[:, self.order]
