"""D3: a 16-bit gradient keeps its levels on every road from file to model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from vitscope.core.config import updated
from vitscope.data.config import DataConfig
from vitscope.data.dataset import open_dataset
from vitscope.data.decode import decode_image
from vitscope.data.loaders.choose import make_loader

RAMP = np.linspace(0, 65535, 64 * 64).reshape(64, 64).astype(np.uint16)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for label in ("dark", "light"):
        (tmp_path / label).mkdir()
        for number in range(10):
            Image.fromarray(RAMP if label == "dark" else RAMP[::-1].copy()).save(tmp_path / label / f"{number}.png")
    return tmp_path


def test_decoding_keeps_more_than_200_levels(folder: Path) -> None:
    for in_chans in (1, 3):
        levels = np.unique(np.asarray(decode_image(folder / "dark" / "0.png", in_chans=in_chans)))
        assert len(levels) > 200
        assert (levels.min(), levels.max()) == (0, 255)


@pytest.mark.parametrize("loader", ["worker", "device"])
@pytest.mark.parametrize("part", ["train", "test"])
def test_batches_keep_more_than_200_levels(folder: Path, loader: str, part: str) -> None:
    config = updated(DataConfig(name=str(folder)), loader=loader, batch_size=4, workers=0)
    made = make_loader(open_dataset(config), part, preprocess=config.preprocess((64, 64), 3))  # type: ignore[arg-type]
    image = next(made.epoch(0)).images[0]
    made.close()
    assert len(torch.unique(image)) > 200
    assert image.mean().abs() < 0.05  # Pillow's own conversion would make it all but white
