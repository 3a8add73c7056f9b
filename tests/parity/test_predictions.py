"""200 photographs through our predictor, and through timm's and transformers' own pipelines with the same weights."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
import transformers
from PIL import Image
from timm.data.config import resolve_data_config
from timm.data.transforms_factory import create_transform
from timm.models._hub import save_for_hf

from parity.random_weights import fill_with_large_random_weights
from vitscope.core.environment import data_roots
from vitscope.infer.predictor import Predictor

COUNT = 200
CLASSES = 10


@pytest.fixture(scope="module")
def photographs() -> list[Image.Image]:
    import pyarrow.parquet as pq

    found = [root / "imagenette160" for root in data_roots() if (root / "imagenette160").is_dir()]
    if not found:
        pytest.skip("no imagenette160 under $VITSCOPE_DATA or data/")
    file = pq.ParquetFile(found[0] / "validation-00000-of-00001.parquet")
    rows = next(file.iter_batches(batch_size=COUNT, columns=["image"])).column("image")
    pictures = [Image.open(io.BytesIO(row.as_py()["bytes"])).convert("RGB") for row in rows]
    # Not all square: the cut and the rounding of sizes are part of a pipeline.
    return [picture.crop((0, 0, 160 - place % 40, 160 - place % 7)) for place, picture in enumerate(pictures)]


def calmed(model: Any, head: Any) -> None:
    """Large random weights, but logits of a few units: probabilities of 0 and 1 would compare nothing."""
    fill_with_large_random_weights(model)
    with torch.no_grad():
        head.weight.mul_(0.05)
        head.bias.zero_()


def assert_same(predictor: Predictor, photographs: list[Image.Image], wanted: torch.Tensor) -> None:
    found = predictor.classify(photographs, top_k=CLASSES)
    assert wanted.shape == (len(photographs), CLASSES)
    assert wanted.max() < 0.999
    assert wanted.argmax(-1).unique().numel() > 1, "one answer for all would compare nothing"
    for told, row in zip(found, wanted, strict=True):
        best = row.topk(2).values
        if best[0] - best[1] > 1e-4:
            assert told.index == row.argmax().item()
        for guess in told.top_k:
            assert guess.probability == pytest.approx(row[guess.index].item(), abs=1e-4)


def test_as_timm_says(photographs: list[Image.Image], tmp_path: Path) -> None:
    theirs = timm.create_model("vit_tiny_patch16_224", depth=2, num_classes=CLASSES).eval()
    calmed(theirs, theirs.head)
    save_for_hf(theirs, str(tmp_path), model_args={"depth": 2}, safe_serialization=True)
    again = timm.create_model(f"local-dir:{tmp_path}", pretrained=True).eval()
    transform: Any = create_transform(**resolve_data_config({}, model=again), is_training=False)
    with torch.inference_mode():
        wanted = again(torch.stack([transform(picture) for picture in photographs])).softmax(-1)
    assert_same(Predictor.load(tmp_path, device="cpu"), photographs, wanted)


def test_as_transformers_says(photographs: list[Image.Image], tmp_path: Path) -> None:
    names = {number: f"class {number}" for number in range(CLASSES)}
    config = transformers.ViTConfig(
        image_size=96,
        hidden_size=192,
        intermediate_size=768,
        num_hidden_layers=3,
        num_attention_heads=3,
        id2label=names,
    )
    theirs = transformers.ViTForImageClassification(config).eval()
    calmed(theirs, theirs.classifier)
    theirs.save_pretrained(tmp_path)
    transformers.ViTImageProcessor(size={"height": 96, "width": 96}).save_pretrained(tmp_path)
    pipe: Any = transformers.pipeline("image-classification", model=str(tmp_path), device="cpu")
    said = pipe(photographs, top_k=CLASSES, batch_size=32)
    wanted = torch.zeros(len(photographs), CLASSES)
    for row, answer in enumerate(said):
        for guess in answer:
            wanted[row, int(guess["label"].removeprefix("class "))] = guess["score"]
    predictor = Predictor.load(tmp_path, device="cpu")
    assert predictor.labels == list(names.values())
    assert_same(predictor, photographs, wanted)
