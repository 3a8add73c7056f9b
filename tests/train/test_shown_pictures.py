"""Training says what the model will not see of the pictures, and which setting shows it more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from vitscope.data.config import half_normalised
from vitscope.data.dataset import open_dataset
from vitscope.train.shown_pictures import said_of_pictures


def pictures(place: Path, size: tuple[int, int], *, colourful: bool) -> Any:
    for name in ("cat", "dog"):
        (place / name).mkdir(parents=True)
        for number in range(10):
            pixels = np.random.default_rng(number).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
            image = Image.fromarray(pixels)
            (image if colourful else image.convert("L")).save(place / name / f"{number}.png")
    return open_dataset(str(place))


def test_larger_and_colourful(tmp_path: Path) -> None:
    dataset = pictures(tmp_path, (64, 48), colourful=True)
    shrunk, grey = said_of_pictures(dataset, half_normalised((16, 16), 1))
    assert shrunk.startswith("pictures of 48 x 64 are shrunk to 16 x 16, the model's size: a larger --model.img-size ")
    assert "--model.in-chans 3" in grey


@pytest.mark.parametrize(
    ("size", "channels", "colourful"), [((48, 48), 3, True), ((56, 42), 3, True), ((64, 64), 1, False)]
)
def test_nothing_is_lost(size: tuple[int, int], channels: int, colourful: bool, tmp_path: Path) -> None:
    """As large as the model's, with the usual room to cut from, or grey before."""
    side = 48 if channels == 3 else 64
    dataset = pictures(tmp_path, size, colourful=colourful)
    assert said_of_pictures(dataset, half_normalised((side, side), channels)) == []
