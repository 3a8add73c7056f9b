"""Hugging Face data sets, offline: local folders as `datasets` writes them, and names that cannot be reached."""

from __future__ import annotations

import io
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from vitscope.core.errors import DataError, UsageError
from vitscope.data.config import DataConfig
from vitscope.data.sources import hub
from vitscope.data.sources.hub import HubDataset

CONFIG = DataConfig(name="hub")


def png(value: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.full((3, 4, 3), value, dtype=np.uint8)).save(file, "PNG")
    return file.getvalue()


@pytest.fixture
def hf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The package, with its cache in the test's folder and no network."""
    datasets = pytest.importorskip(
        "datasets", reason="the package datasets is not installed: pip install 'vitscope[hub]'"
    )
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    datasets.disable_progress_bars()
    return datasets


def made(hf: Any, values: list[int], labels: list[Any], **more: Any) -> Any:
    kind = hf.Value("string") if isinstance(labels[0], str) else hf.ClassLabel(names=["cat", "dog", "owl"])
    columns = {"img": [{"bytes": png(value), "path": None} for value in values], "label": labels}
    features = hf.Features({"img": hf.Image(), "label": kind} | {name: hf.Value("int64") for name in more})
    return hf.Dataset.from_dict(columns | more, features=features)


def parquet(folder: Path, **splits: Any) -> str:
    (folder / "data").mkdir(parents=True)
    for name, split in splits.items():
        split.to_parquet(str(folder / "data" / f"{name}-00000-of-00001.parquet"))
    return f"hf:{folder}"


def greys(source: HubDataset) -> list[int]:
    return [int(np.asarray(source.picture(index)).max()) for index in range(len(source))]


def test_parts_labels_and_bytes(hf: Any, tmp_path: Path) -> None:
    name = parquet(
        tmp_path / "set",
        train=made(hf, [1, 2, 3, 4], [0, 1, 2, 1]),
        validation=made(hf, [5, 6], [2, 0]),
        test=made(hf, [7, 8, 9], [-1, -1, -1]),
    )
    assert HubDataset.looks_like(name)
    source = HubDataset.open(name, CONFIG)
    assert source.class_names == ("cat", "dog", "owl")
    assert source.labels.tolist() == [0, 1, 2, 1, 2, 0]
    assert {part: numbers.tolist() for part, numbers in source.parts.items()} == {
        "train": [0, 1, 2, 3],
        "validation": [4, 5],
    }
    assert [source.read(index) for index in range(6)] == [png(value) for value in range(1, 7)]
    assert source.where(5) == f"{name}, split validation, row 1 (counted from 0)"
    assert source.notes == ["split 'test' has no labels and was left out: 3 pictures"]


def test_copies_are_small_and_hashes_follow_the_content(hf: Any, tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (40, 32, 32, 3), dtype=np.uint8)
    pictures = [Image.fromarray(pixels) for pixels in noise]
    features = hf.Features({"img": hf.Image(), "label": hf.ClassLabel(names=["a", "b"])})
    split = hf.Dataset.from_dict({"img": pictures, "label": [0, 1] * 20}, features=features)
    source = HubDataset.open(parquet(tmp_path / "a", train=split), CONFIG)
    packed = pickle.dumps(source)
    assert len(packed) < noise.nbytes / 10
    copy = pickle.loads(packed)
    assert all(np.array_equal(np.asarray(copy.picture(n)), noise[n]) for n in range(40))
    again = HubDataset.open(f"hf:{tmp_path / 'a'}", CONFIG)
    assert again.content_hash() == source.content_hash() == copy.content_hash()
    other = HubDataset.open(parquet(tmp_path / "b", train=made(hf, [1, 2], [0, 1])), CONFIG)
    assert other.content_hash() != source.content_hash()


def test_a_folder_saved_to_disk(hf: Any, tmp_path: Path) -> None:
    hf.DatasetDict({"train": made(hf, [1, 2], [0, 1]), "test": made(hf, [3], [1])}).save_to_disk(tmp_path / "both")
    source = HubDataset.open(f"hf:{tmp_path / 'both'}", CONFIG)
    assert (greys(source), set(source.parts)) == ([1, 2, 3], {"train", "test"})
    made(hf, [4, 5], [1, 0]).save_to_disk(tmp_path / "one")
    source = HubDataset.open(f"hf:{tmp_path / 'one'}", CONFIG)
    assert (greys(source), source.labels.tolist(), source.parts) == ([4, 5], [1, 0], {})


def test_texts_and_other_splits(hf: Any, tmp_path: Path) -> None:
    hf.DatasetDict({"train": made(hf, [1, 2], ["pear", "fig"]), "unsupervised": made(hf, [3], ["fig"])}).save_to_disk(
        tmp_path / "set"
    )
    source = HubDataset.open(f"hf:{tmp_path / 'set'}", CONFIG)
    assert (source.class_names, source.labels.tolist()) == (("fig", "pear"), [1, 0])
    assert source.notes == ["split 'unsupervised' is not used: 1 pictures"]


def test_columns_can_be_asked_for(hf: Any, tmp_path: Path) -> None:
    made(hf, [1, 2, 3], [0, 1, 2], quality=[5, 6, 5]).save_to_disk(tmp_path / "set")
    name = f"hf:{tmp_path / 'set'}"
    source = HubDataset.open(name, DataConfig(name=name, image_column="img", label_column="quality"))
    assert (source.class_names, source.labels.tolist()) == (("5", "6"), [0, 1, 0])
    with pytest.raises(DataError) as refusal:
        HubDataset.open(name, DataConfig(name=name, label_column="qualty"))
    assert refusal.value.fix == "did you mean 'quality'?"


def test_several_columns_must_be_told_apart(hf: Any, tmp_path: Path) -> None:
    names = hf.ClassLabel(names=["a", "b"])
    features = hf.Features({"image": hf.Image(), "shape": names, "colour": names})
    columns = {"image": [{"bytes": png(1), "path": None}], "shape": [0], "colour": [1]}
    hf.Dataset.from_dict(columns, features=features).save_to_disk(tmp_path / "set")
    with pytest.raises(DataError, match="several columns may be the label; the columns are 'image', 'shape', 'colour'"):
        HubDataset.open(f"hf:{tmp_path / 'set'}", CONFIG)


def test_without_pictures_or_labels(hf: Any, tmp_path: Path) -> None:
    hf.Dataset.from_dict({"text": ["a"], "label": [0]}).save_to_disk(tmp_path / "text")
    with pytest.raises(DataError, match="no column of images found; the columns are 'text', 'label'"):
        HubDataset.open(f"hf:{tmp_path / 'text'}", CONFIG)
    made(hf, [1], [-1]).save_to_disk(tmp_path / "hidden")
    with pytest.raises(DataError, match="no split has labels"):
        HubDataset.open(f"hf:{tmp_path / 'hidden'}", CONFIG)


def test_a_class_that_was_never_trained_is_refused(hf: Any, tmp_path: Path) -> None:
    name = parquet(tmp_path / "set", train=made(hf, [1, 2], [0, 1]), test=made(hf, [3], [2]))
    with pytest.raises(DataError, match="class in 'test' without a picture in 'train': 'owl'"):
        HubDataset.open(name, CONFIG)


def test_a_row_without_a_picture_fails_alone(hf: Any, tmp_path: Path) -> None:
    features = hf.Features({"image": hf.Image(), "label": hf.ClassLabel(names=["a"])})
    rows = {"image": [None, {"bytes": png(5), "path": None}], "label": [0, 0]}
    hf.Dataset.from_dict(rows, features=features).save_to_disk(tmp_path / "set")
    source = HubDataset.open(f"hf:{tmp_path / 'set'}", CONFIG)
    with pytest.raises(DataError, match="the row holds no picture"):
        source.picture(0)
    assert np.asarray(source.picture(1)).max() == 5


@pytest.mark.parametrize("name", ["nobody/nothing", "hf:nothing", "hf:nobody/nothing:small"])
def test_a_name_that_cannot_be_reached(hf: Any, name: str) -> None:
    assert HubDataset.looks_like(name)
    with pytest.raises(DataError) as refusal:
        HubDataset.open(name, CONFIG)
    assert "cannot be loaded" in refusal.value.what
    assert "load_dataset('no" in (refusal.value.where or "")
    assert ("'small'" if name.endswith("small") else "None") in (refusal.value.where or "")


def test_a_configuration_must_be_chosen(hf: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any) -> None:
        raise ValueError("Config name is missing.\nPlease pick one among the available configs: ['full', 'small']\n")

    monkeypatch.setattr(hf, "load_dataset", refuse)
    with pytest.raises(DataError) as refusal:
        HubDataset.open("owner/name", CONFIG)
    assert "['full', 'small']" in refusal.value.what
    assert refusal.value.fix == "write hf:owner/name:CONFIGURATION"


def test_without_the_package_the_fix_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "version_of", lambda package: None)
    with pytest.raises(UsageError) as refusal:
        HubDataset.open("hf:mnist", CONFIG)
    assert "pip install 'vitscope[hub]'" in (refusal.value.fix or "")


def test_the_package_is_imported_only_when_asked_for() -> None:
    program = "import sys, vitscope.data.sources.hub; sys.exit('datasets' in sys.modules)"
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    assert subprocess.run([sys.executable, "-c", program], env=env, timeout=60, check=False).returncode == 0


def test_looks_like(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert HubDataset.looks_like("owner/name-1.0")
    assert HubDataset.looks_like(Path("owner/name"))
    for name in ("a/b", "name", "/abs/path", "a/b/c", "o/n\0", ""):
        assert not HubDataset.looks_like(name)
