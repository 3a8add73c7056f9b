"""The first training pictures as the model sees them: cut, varied, mixed and normalised, with what it is told.

B batch, C channels, H W image, K classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vitscope.data.config import PreprocessConfig
from vitscope.data.survey.contact_sheet import shortened_name
from vitscope.train.show.plots.gallery import COLUMNS, LONGEST, draw_gallery

if TYPE_CHECKING:
    from torch import Tensor

PICTURES = 4 * COLUMNS


def draw_first_batches(
    batches: list[tuple[Tensor, Tensor]], preprocess: PreprocessConfig, names: Sequence[str], path: str | Path
) -> Path:
    """`batches`: (images (B, C, H, W), labels (B,) or shares (B, K)). Each gives equally many of the pictures shown."""
    each = -(-PICTURES // max(1, len(batches)))
    each = -(-each // COLUMNS) * COLUMNS  # whole rows
    pictures: list[np.ndarray] = []
    captions: list[str] = []
    for images, labels in batches:
        pictures += [as_shown(image, preprocess) for image in images[:each].detach().float().cpu().numpy()]
        captions += [told(label, names) for label in labels[:each].detach().cpu().numpy()]
    height, width = preprocess.img_size
    title = f"first training pictures as the model sees them, {height} x {width}"
    return draw_gallery(pictures, captions, path, title=title)


def as_shown(image: np.ndarray, preprocess: PreprocessConfig) -> np.ndarray:
    """(C, H, W) normalised -> (H, W, 3) or (H, W), from 0 to 1."""
    shape = (-1, 1, 1)
    mean, std = (np.asarray(values, dtype=np.float32).reshape(shape) for values in (preprocess.mean, preprocess.std))
    pixels = np.nan_to_num(image * std + mean, nan=0.0, posinf=1.0, neginf=0.0).clip(0, 1)
    return pixels.transpose(1, 2, 0) if len(pixels) == 3 else pixels[0]


def told(label: np.ndarray, names: Sequence[str]) -> str:
    """The class, or the two largest shares of a mixed picture."""
    if label.ndim == 0:
        return shortened_name(names[int(label)], LONGEST)
    order = np.argsort(-label, kind="stable")[:2]
    parts = [(names[int(place)], float(label[place])) for place in order if label[place] >= 0.005]
    if len(parts) == 1 and parts[0][1] > 0.995:
        return shortened_name(parts[0][0], LONGEST)
    return "\n".join(f"{shortened_name(name, LONGEST - 5)} {100 * share:.0f} %" for name, share in parts)
