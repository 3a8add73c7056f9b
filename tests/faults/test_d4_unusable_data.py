"""D4: data nothing can be trained on is refused in words, with exit code 3, before a device sees it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vitscope.core.errors import EXIT_DATA, DataError
from vitscope.data.config import DataConfig
from vitscope.data.dataset import open_dataset
from vitscope.data.loaders.choose import make_loader


def fill(folder: Path, count: int = 10) -> None:
    folder.mkdir(parents=True)
    for number in range(count):
        pixels = np.random.default_rng(number).integers(0, 256, (8, 8, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")


def empty_folder(root: Path) -> str:
    (root / "set").mkdir()
    return str(root / "set")


def one_class(root: Path) -> str:
    fill(root / "set" / "cat", 30)
    return str(root / "set")


def unseen_class(root: Path) -> str:
    for part, label in (("train", "cat"), ("train", "dog"), ("val", "cat"), ("val", "elk")):
        fill(root / "set" / part / label)
    return str(root / "set")


def too_few(root: Path) -> str:
    for label in ("cat", "dog"):
        fill(root / "set" / label, 1)
    return str(root / "set")


def wrong_label(root: Path) -> str:
    pixels = np.zeros((20, 8, 8, 3), dtype=np.uint8)
    np.savez(root / "set.npz", images=pixels, labels=np.arange(20) - 3, class_names=["a", "b"])
    return str(root / "set.npz")


def flat_folder(root: Path) -> str:
    fill(root / "set")
    return str(root / "set")


CASES: list[tuple[Callable[[Path], str], str]] = [
    (empty_folder, "an empty folder"),
    (one_class, "only one class, 'cat'"),
    (unseen_class, "elk"),
    (too_few, "no pictures are left for"),
    (wrong_label, "label"),
    (flat_folder, "class"),
]


@pytest.mark.parametrize(("make", "words"), CASES, ids=[make.__name__ for make, _ in CASES])
def test_training_is_refused(make: Callable[[Path], str], words: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        open_dataset(make(tmp_path)).require_trainable()
    assert words in str(caught.value)
    assert caught.value.exit_code == EXIT_DATA
    assert caught.value.fix
    assert "set" in str(caught.value.where)


def test_an_empty_class_is_told_and_the_others_train(tmp_path: Path) -> None:
    for label in ("cat", "dog"):
        fill(tmp_path / "set" / label, 20)
    (tmp_path / "set" / "elk").mkdir()
    dataset = open_dataset(str(tmp_path / "set"))
    assert any("elk" in note for note in dataset.source.notes)
    dataset.require_trainable()
    loader = make_loader(dataset, "train", preprocess=dataset.config.preprocess((8, 8), 3), batch_size=8)
    labels = {label for batch in loader.epoch(0) for label in batch.labels.tolist()}
    assert {dataset.class_names[label] for label in labels} == {"cat", "dog"}


@pytest.mark.parametrize("kind", ["worker", "device"])
def test_a_batch_larger_than_the_data_is_refused(kind: str, tmp_path: Path) -> None:
    for label in ("cat", "dog"):
        fill(tmp_path / "set" / label, 20)
    dataset = open_dataset(DataConfig(name=str(tmp_path / "set"), loader=kind, workers=0))  # type: ignore[arg-type]
    with pytest.raises(DataError, match="a batch of 128 is larger than the training set of") as caught:
        make_loader(dataset, "train", preprocess=dataset.config.preprocess((8, 8), 3))
    assert caught.value.exit_code == EXIT_DATA


@pytest.mark.parametrize("make", [empty_folder, flat_folder, wrong_label], ids=lambda make: make.__name__)
def test_the_command_leaves_with_3_and_three_lines(make: Callable[[Path], str], tmp_path: Path) -> None:
    """What cannot be opened cannot be looked over either; the other cases are listed as warnings by `vitscope data`."""
    done = subprocess.run(
        [sys.executable, "-m", "vitscope", "data", make(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == EXIT_DATA, done.stderr
    assert "Traceback" not in done.stderr
    lines = done.stderr.strip().splitlines()
    assert [line.partition(":")[0] for line in lines] == ["error", "where", "to do"]
