"""What training does to pictures that are larger, or more colourful, than those the model takes."""

from __future__ import annotations

import statistics

import numpy as np

from vitscope.core.errors import DataError
from vitscope.data.config import PreprocessConfig
from vitscope.data.dataset import Dataset

LOOKED_AT = 9
"""Pictures, evenly spread over those to train on."""
LARGER = 8 / 7
"""From this ratio on pictures count as shrunk: 256 to 224 is the usual room for cutting."""


def said_of_pictures(dataset: Dataset, preprocess: PreprocessConfig) -> list[str]:
    """A sentence for each thing that is lost, with the setting that keeps it."""
    rows = dataset.splits["train"]
    places = np.unique(np.linspace(0, len(rows) - 1, LOOKED_AT).astype(int)) if len(rows) else []
    pictures = []
    for index in rows[places]:
        try:
            pictures.append(dataset.source.picture(int(index), 3))
        except DataError:  # told where all are read
            continue
    if not pictures:
        return []
    said = []
    height, width = (
        int(statistics.median(sides)) for sides in zip(*((p.height, p.width) for p in pictures), strict=True)
    )
    down, across = preprocess.img_size
    if height > LARGER * down and width > LARGER * across:
        about = f"{height} x {width}" if len({p.size for p in pictures}) == 1 else f"about {height} x {width}"
        said.append(
            f"pictures of {about} are shrunk to {down} x {across}, the model's size: a larger --model.img-size keeps "
            "more detail"
        )
    if preprocess.in_chans == 1 and any(_is_colourful(np.asarray(picture)) for picture in pictures):
        said.append("pictures are made grey, as the model has one channel; --model.in-chans 3 shows it their colours")
    return said


def _is_colourful(pixels: np.ndarray) -> bool:
    """(H, W, 3); what compression leaves of a grey picture's colours does not count."""
    return int(np.ptp(pixels.astype(np.int16), axis=2).max()) > 8
