"""The pictures the model is most confidently wrong about."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from vitscope.data.survey.contact_sheet import shortened_name
from vitscope.train.show.plots.gallery import LONGEST, draw_gallery


def draw_worst(pictures: list[np.ndarray], captions: list[str], path: str | Path) -> Path:
    """`pictures` (H, W, C) uint8, as they are stored or as the model sees them; `captions` of two or three lines:
    true class, predicted class with its confidence (see `worst_caption`)."""
    shown = [picture[..., 0] if picture.ndim == 3 and picture.shape[2] == 1 else picture for picture in pictures]
    return draw_gallery(shown, captions, path, title="most confidently wrong", columns=6)


def worst_caption(true: str, predicted: str, confidence: float) -> str:
    """What stands below a picture.

    >>> print(worst_caption("cat", "dog", 0.987))
    cat
    taken for dog
    99 % sure
    """
    true, predicted = shortened_name(true, LONGEST + 5), shortened_name(predicted, LONGEST - 5)
    return f"{true}\ntaken for {predicted}\n{100 * confidence:.0f} % sure"
