"""D2: one picture in the eight orientations of EXIF is one tensor, in training, evaluation and prediction."""

from __future__ import annotations

import io
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from faults.turned_pictures import turned
from vitscope.data.config import AugmentConfig, PreprocessConfig
from vitscope.data.decode import decode_image
from vitscope.data.loaders.worker import WorkerLoader
from vitscope.data.preprocess import preprocess
from vitscope.data.sources.source import Source, Stored
from vitscope.data.transforms.batch import BatchTransform

CONFIG = PreprocessConfig(img_size=(20, 28), mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))


def upright() -> Image.Image:
    pixels = np.random.default_rng(0).integers(0, 256, (30, 50, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


class Turned(Source):
    """The same picture eight times."""

    kind = "turned pictures"

    def __init__(self, file_format: str) -> None:
        super().__init__("turned", np.zeros(8), ["a", "b"])
        self.files = turned(upright(), file_format)

    def read(self, index: int) -> Stored:
        return self.files[index]

    def where(self, index: int) -> str:
        return f"turned/{index}"

    def content_hash(self) -> str:
        return "0"


def loaded(source: Source, *, training: bool) -> Iterator[Tensor]:
    loader = WorkerLoader(
        source,
        np.arange(len(source)),
        preprocess=CONFIG,
        augment=AugmentConfig() if training else None,
        batch_size=4,
        seed=0,
        device=torch.device("cpu"),
        training=training,
        finish=BatchTransform(AugmentConfig(), CONFIG).finish,
        workers=1,
    )
    try:
        for batch in loader.epoch(0):
            yield from batch.images
    finally:
        loader.close()


@pytest.mark.parametrize("file_format", ["PNG", "TIFF"])
def test_eight_orientations_are_one_tensor(file_format: str) -> None:
    source = Turned(file_format)
    wanted = preprocess(upright(), CONFIG)
    assert not any(torch.equal(wanted, wanted.flip(dims)) for dims in ((-1,), (-2,), (-1, -2)))
    predicted = [preprocess(decode_image(file), CONFIG) for file in source.files]
    for found in (predicted, list(loaded(source, training=True)), list(loaded(source, training=False))):
        assert len(found) == 8
        assert all(torch.equal(tensor, wanted) for tensor in found)


def test_the_files_really_lie_differently() -> None:
    """Else the test above proves nothing."""
    lying = {Image.open(io.BytesIO(file)).tobytes() for file in Turned("PNG").files}
    assert len(lying) == 8
