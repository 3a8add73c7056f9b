"""Small files of every format the pages speak of, under the names they use."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image

import vitscope
from vitscope.models.build import build_model
from vitscope.models.config import ViTConfig

CLASSES = ("bee", "cat", "elk")
SETTINGS = """\
data: {name: digits, batch_size: 64}
model: {name: vit_tiny, img_size: 8, patch_size: 1, in_chans: 1, embed_dim: 64, depth: 2, num_heads: 2}
optim: {lr: 0.5}
"""
"""Of mine.yaml: with a rate that is far too high, so that the doctor has something to find."""
MY_MODEL = ViTConfig(img_size=128, patch_size=16, num_classes=5, embed_dim=32, depth=6, num_heads=2)
"""As small as the pages allow, which name its sixth block, its second head and the patch in row 6, column 7."""


def write_examples(root: Path) -> None:
    """photos, pets, shards, data/cifar10, cifar-10-batches-py, mnist-files, scans.npz, birds.csv; of weights, my-model
    and weights.pth; of settings, mine.yaml."""
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (60, 32, 32, 3), dtype=np.uint8)
    labels = np.arange(60) % 3
    for number, (picture, label) in enumerate(zip(pixels, labels, strict=True)):
        for place in (Path("photos"), Path("pets", "train" if number < 40 else "val")):
            folder = root / place / CLASSES[label]
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(picture).save(folder / f"{number}.jpg")
    for folder in (root / "shards", root / "data" / "cifar10"):
        _parquet(folder / "train-00000-of-00001.parquet", pixels[:40], labels[:40])
        _parquet(folder / "test-00000-of-00001.parquet", pixels[40:], labels[40:])
    _cifar(root / "cifar-10-batches-py", pixels, labels)
    _idx(root / "mnist-files", pixels[..., 0], labels)
    np.savez(root / "scans.npz", images=pixels, labels=labels)
    rows = [f"photos/{CLASSES[label]}/{number}.jpg,{CLASSES[label]}" for number, label in enumerate(labels)]
    (root / "birds.csv").write_text("path,label\n" + "\n".join(rows) + "\n")
    (root / "mine.yaml").write_text(SETTINGS)
    vitscope.save_model(build_model(MY_MODEL), root / "my-model")
    weights = vitscope.create_model("vit_tiny_patch16_224", num_classes=5).state_dict()
    torch.save({"model": weights}, root / "weights.pth")


def _parquet(path: Path, pixels: np.ndarray, labels: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    cells = []
    for picture in pixels:
        file = io.BytesIO()
        Image.fromarray(picture).save(file, "PNG")
        cells.append({"bytes": file.getvalue(), "path": None})
    features = {"image": {"_type": "Image"}, "label": {"names": list(CLASSES), "_type": "ClassLabel"}}
    table = pa.table({"image": cells, "label": labels})
    table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    pq.write_table(table, path)


def _cifar(folder: Path, pixels: np.ndarray, labels: np.ndarray) -> None:
    folder.mkdir()
    planes = pixels.transpose(0, 3, 1, 2).reshape(len(pixels), -1)
    for number in range(6):
        part = slice(10 * number, 10 * number + 10)
        batch = {b"data": planes[part], b"labels": labels[part].tolist()}
        name = "test_batch" if number == 5 else f"data_batch_{number + 1}"
        (folder / name).write_bytes(pickle.dumps(batch, protocol=2))
    names = [name.encode() for name in (*CLASSES, *(f"spare {number}" for number in range(7)))]
    (folder / "batches.meta").write_bytes(pickle.dumps({b"label_names": names}, protocol=2))


def _idx(folder: Path, pixels: np.ndarray, labels: np.ndarray) -> None:
    folder.mkdir()
    for part, chosen in (("train", slice(0, 40)), ("t10k", slice(40, 60))):
        shown, known = pixels[chosen], labels[chosen].astype(np.uint8)
        head = struct.pack(">IIII", 0x803, len(shown), *shown.shape[1:])
        (folder / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(head + shown.tobytes()))
        head = struct.pack(">II", 0x801, len(known))
        (folder / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(head + known.tobytes()))
