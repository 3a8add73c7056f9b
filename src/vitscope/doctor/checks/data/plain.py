"""Pictures of a data set as they lie there, before any loader has varied them."""

from __future__ import annotations

import time

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from vitscope.data.config import AugmentConfig
from vitscope.data.dataset import Dataset
from vitscope.data.decode import BadImageError, decode_image
from vitscope.doctor.glance import SIDE
from vitscope.doctor.patient import Patient
from vitscope.doctor.thresholds.data import GLANCE_SECONDS, PROBE_PICTURES


def is_varied(patient: Patient) -> bool | None:
    """Whether training shows a picture differently each time; None where that cannot be known."""
    if patient.settings is not None:
        return patient.settings.augment != AugmentConfig()
    rows = patient.rows
    if rows is None or len(rows) < 4:
        return None
    pairs = [(rows[number], rows[number]) for number in range(4)]
    if not all(isinstance(one, tuple | list) and isinstance(one[0], Tensor) for one, _ in pairs):
        return None
    return not all(torch.equal(one[0], other[0]) for one, other in pairs)


def plain_pictures(
    dataset: Dataset, part: str, count: int, *, seconds: float = GLANCE_SECONDS
) -> tuple[Tensor, Tensor]:
    """(n, 3, SIDE, SIDE) from 0 to 255 and (n,) labels, spread evenly over the part, in any order. Unreadable ones are
    left out, for they are told of elsewhere, and those there is no time for: reading ends after `seconds`, but not
    before there are PROBE_PICTURES, unless that takes twice as long."""
    numbers = dataset.splits[part]
    chosen = numbers[np.linspace(0, len(numbers) - 1, min(count, len(numbers))).round().astype(np.int64)]
    images: list[Tensor] = []
    labels: list[int] = []
    began = time.perf_counter()
    for number, stored in dataset.source.scan_by_lot(chosen, np.random.default_rng(0)):
        took = time.perf_counter() - began
        if took > 2 * seconds or (took > seconds and len(images) >= PROBE_PICTURES):
            break
        if isinstance(stored, Exception):
            continue
        try:
            picture = decode_image(stored, pixel_limit=dataset.config.pixel_limit)
        except (BadImageError, OSError, ValueError):
            continue
        if picture.size != (SIDE, SIDE):
            picture = picture.resize((SIDE, SIDE), Image.Resampling.BILINEAR)
        images.append(torch.from_numpy(np.array(picture)).permute(2, 0, 1))
        labels.append(int(dataset.source.labels[number]))
    together = torch.stack(images).float() if images else torch.empty(0, 3, SIDE, SIDE)
    return together, torch.tensor(labels, dtype=torch.int64)
