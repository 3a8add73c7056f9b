"""Files of features: what goes in comes out, in both formats and all types; whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from vitscope.core.dtypes import TORCH_DTYPES
from vitscope.core.errors import DataError, UsageError
from vitscope.infer.features.collect import collect
from vitscope.infer.features.extract import reading_of
from vitscope.infer.features.features import Features
from vitscope.infer.features.files import is_features_file, read_features, writer_to
from vitscope.infer.features.pictures import find_labelled
from vitscope.infer.predictor import Predictor
from vitscope.models.build import build_model
from vitscope.models.config import ViTConfig

TINY = ViTConfig(img_size=16, patch_size=8, embed_dim=12, depth=2, num_heads=2, num_classes=3)


@pytest.fixture
def predictor() -> Predictor:
    torch.manual_seed(0)
    return Predictor(build_model(TINY), device="cpu", batch_size=3)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    for number in range(8):
        place = tmp_path / "photos" / ("odd Ü" if number % 2 else "even")
        place.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(number).integers(0, 256, (16, 16, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(place / f"{'long name ' * (number % 3)}{number}.png")
    (tmp_path / "photos/even/torn.jpg").write_bytes(b"torn")
    return tmp_path / "photos"


def write(
    predictor: Predictor, photos: object, path: Path, dtype: torch.dtype = torch.float32, tokens: str = "map"
) -> None:
    found = find_labelled(photos)  # type: ignore[arg-type]
    reading = reading_of(predictor, layers=None, tokens=tokens)  # type: ignore[arg-type]
    with writer_to(path, reading, dtype, found.classes) as writer:
        collect(predictor, found, reading, writer=writer, dtype=dtype, source="somewhere")


def assert_same(found: Features, wanted: Features) -> None:
    assert list(found.values) == list(wanted.values)
    for name, values in wanted.values.items():
        assert found[name].dtype == values.dtype
        assert torch.equal(found[name], values)
    assert list(found.paths) == list(wanted.paths)
    assert list(found.places) == list(wanted.places)
    assert found.classes == wanted.classes
    assert (found.labels is None) == (wanted.labels is None)
    assert found.labels is None or torch.equal(found.labels, wanted.labels)  # type: ignore[arg-type]
    assert list(found.bad) == list(wanted.bad)
    assert found.about["model"]["source"] == "somewhere"
    rest = {"features", "preprocessing", "img_size", "count", "bad", "classes", "dtype"}
    assert {key: found.about[key] for key in rest} == {key: wanted.about[key] for key in rest}


@pytest.mark.parametrize("dtype", TORCH_DTYPES)
@pytest.mark.parametrize("ending", ["npz", "parquet"])
def test_what_goes_in_comes_out(
    predictor: Predictor, photos: Path, tmp_path: Path, ending: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vitscope.infer.features.parquet_file.GROUP_BYTES", 1000)  # several row groups
    path = tmp_path / f"found.{ending}"
    write(predictor, photos, path, TORCH_DTYPES[dtype])
    assert is_features_file(path)
    wanted = predictor.features(photos, layers=None, tokens="map", dtype=TORCH_DTYPES[dtype])
    assert len(wanted) == 8
    assert len(wanted.bad) == 1
    assert_same(read_features(path), wanted)
    assert sorted(one.name for one in tmp_path.iterdir()) == [path.name, "photos"], "nothing else is left"


@pytest.mark.parametrize("ending", ["npz", "parquet"])
def test_pictures_without_classes_or_none_at_all(
    predictor: Predictor, photos: Path, tmp_path: Path, ending: str
) -> None:
    path = tmp_path / f"found.{ending}"
    one = photos / "even" / "0.png"
    write(predictor, [one], path)
    assert_same(read_features(path), predictor.features([one], layers=None, tokens="map"))
    write(predictor, [photos / "even" / "torn.jpg"], path)
    found = read_features(path)
    assert len(found) == 0
    assert found["layer0_map_after_norm"].shape == (0, 12, 2, 2)
    assert len(found.bad) == 1


def test_numpy_and_pyarrow_read_them_alone(predictor: Predictor, photos: Path, tmp_path: Path) -> None:
    """The formats are the libraries' own: nobody needs us to read them."""
    wanted = predictor.features(photos, layers=None, tokens="cls")
    write(predictor, photos, tmp_path / "found.npz", tokens="cls")
    with np.load(tmp_path / "found.npz", allow_pickle=False) as arrays:
        assert arrays.files == [
            "layer0_cls_after_norm",
            "layer1_cls_after_norm",
            "paths",
            "labels",
            "classes",
            "metadata",
        ]
        np.testing.assert_array_equal(arrays["layer1_cls_after_norm"], wanted["layer1_cls_after_norm"].numpy())
        assert arrays["paths"].tolist() == wanted.paths
        assert arrays["classes"][arrays["labels"]].tolist() == [Path(path or "").parent.name for path in wanted.paths]
        assert json.loads(str(arrays["metadata"]))["features"]["layer1_cls_after_norm"]["norm"] == "after"
    write(predictor, photos, tmp_path / "found.parquet", torch.float16, tokens="cls")
    table = pq.read_table(tmp_path / "found.parquet")
    assert table.column_names == ["path", "label", "class", "layer0_cls_after_norm", "layer1_cls_after_norm"]
    rows = np.array(table["layer1_cls_after_norm"].to_pylist(), np.float32)
    np.testing.assert_allclose(rows, wanted["layer1_cls_after_norm"].numpy(), atol=2e-3)
    assert table["class"].to_pylist() == [Path(path or "").parent.name for path in wanted.paths]


@pytest.mark.parametrize("ending", ["npz", "parquet"])
def test_a_pass_that_breaks_leaves_what_was_there(
    predictor: Predictor, photos: Path, tmp_path: Path, ending: str
) -> None:
    path = tmp_path / f"found.{ending}"
    path.write_bytes(b"what was there")
    found = find_labelled(photos)
    reading = reading_of(predictor)

    def broken(images: torch.Tensor) -> torch.Tensor:
        raise ValueError("broken")

    reading.together = broken  # type: ignore[method-assign]
    writer = writer_to(path, reading, torch.float32, found.classes)
    with pytest.raises(ValueError, match="broken"), writer:
        collect(predictor, found, reading, writer=writer)
    assert path.read_bytes() == b"what was there"
    assert sorted(one.name for one in tmp_path.iterdir()) == [path.name, "photos"]


@pytest.mark.parametrize("ending", ["npz", "parquet"])
def test_files_that_hold_no_features_are_refused(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"other.{ending}"
    with pytest.raises(DataError, match="there is no such file"):
        read_features(path)
    path.write_bytes(b"something else")
    assert not is_features_file(path)
    with pytest.raises(DataError, match="no features can be read"):
        read_features(path)
    with pytest.raises(UsageError, match=r"\.npz or \.parquet"):
        read_features(tmp_path / "other.csv")


def test_another_npz_is_not_taken_for_features(tmp_path: Path) -> None:
    np.savez(tmp_path / "scans.npz", images=np.zeros((2, 8, 8), np.uint8))
    assert not is_features_file(tmp_path / "scans.npz")
    with pytest.raises(DataError, match="no features can be read"):
        read_features(tmp_path / "scans.npz")
