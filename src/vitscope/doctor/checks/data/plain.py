"""Pictures of a data set as they lie there, before any loader has varied them."""

from __future__ import annotations

import functools

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from vitscope.data.dataset import Dataset
from vitscope.data.decode import BadImageError, decode_image
from vitscope.data.survey.survey import Survey, survey
from vitscope.doctor.glance import SIDE
from vitscope.doctor.thresholds import SURVEYED


@functools.lru_cache(maxsize=2)
def _surveyed(dataset: Dataset) -> Survey:
    return survey(dataset, limit=SURVEYED)


def plain_survey(dataset: Dataset) -> Survey:
    """Of an even choice; asked once."""
    return _surveyed(dataset)


def plain_pictures(dataset: Dataset, part: str, count: int) -> tuple[Tensor, Tensor]:
    """(n, 3, SIDE, SIDE) from 0 to 255 and (n,) labels, spread evenly over the part; unreadable ones are left out."""
    numbers = dataset.splits[part]
    chosen = numbers[np.linspace(0, len(numbers) - 1, min(count, len(numbers))).round().astype(np.int64)]
    images: list[Tensor] = []
    labels: list[int] = []
    for number in chosen.tolist():
        try:
            picture = decode_image(dataset.source.read(number), pixel_limit=dataset.config.pixel_limit)
        except (BadImageError, OSError, ValueError):
            continue
        if picture.size != (SIDE, SIDE):
            picture = picture.resize((SIDE, SIDE), Image.Resampling.BILINEAR)
        images.append(torch.from_numpy(np.array(picture)).permute(2, 0, 1))
        labels.append(int(dataset.source.labels[number]))
    return torch.stack(images).float(), torch.tensor(labels)
