"""`vitscope features` as a user types it: files, neighbours, maps, verdicts; mistakes answered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from cli.conftest import Shell
from vitscope.cli.main import main
from vitscope.infer.features.files import read_features
from vitscope.infer.predictor import Predictor
from vitscope.models.build import build_model
from vitscope.models.config import ViTConfig
from vitscope.weights.folder import save_model

TINY = ViTConfig(img_size=16, patch_size=8, embed_dim=16, depth=2, num_heads=2, num_classes=3)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    save_model(build_model(TINY), tmp_path / "model")
    for number in range(12):
        place = tmp_path / "photos" / ("[odd]" if number % 2 else "even")
        place.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(number).integers(0, 256, (20, 30, 3), dtype=np.uint8)
        pixels[..., number % 2] //= 8
        Image.fromarray(pixels).save(place / f"{number:02d}.png")
    (tmp_path / "photos/even/torn.jpg").write_bytes(b"\xff\xd8\xff\xe0 torn")
    return tmp_path


def said(args: list[str], capsys: pytest.CaptureFixture[str]) -> Any:
    assert main(["features", *args, "--json", "--device", "cpu"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_file_of_features_and_what_is_in_it(photos: Path, shell: Shell) -> None:
    done = shell("features", "model", "photos", "--out", "found.npz", "--layers", "0", "-1", "--no-norm")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    first, *lines = done.stdout.splitlines()
    assert first.split("  ")[0] == "feature"
    assert [line.split()[0] for line in lines[:2]] == ["layer0_pooled_before_norm", "layer1_pooled_before_norm"]
    assert lines[2].startswith("12 pictures in float32: found.npz, ")
    assert lines[3:] == [
        "1 picture could not be read:",
        "  photos/even/torn.jpg: " + read_features(photos / "found.npz").bad[0].reason,
    ]
    wanted = Predictor.load(photos / "model", device="cpu").features(photos / "photos", layers=[0, -1], norm=False)
    found = read_features(photos / "found.npz")
    for name, values in wanted.values.items():
        torch.testing.assert_close(found[name], values)
    assert [Path(path or "").name for path in found.paths] == [Path(path or "").name for path in wanted.paths]
    assert found.about["model"]["source"] == "model"
    assert found.about["model"]["sha256"]


def test_the_nearest_of_a_folder_and_of_a_file_are_the_same(
    photos: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(photos)
    asked = ["--nearest", "photos/even/04.png", "--top-k", "3"]
    folder = said(["model", "photos", *asked], capsys)
    predictor = Predictor.load(photos / "model", device="cpu")
    values = torch.nn.functional.normalize(predictor.features("photos").only, dim=1)
    names = [Path(path or "").name for path in predictor.features("photos").paths]
    cosines = values @ values[names.index("04.png")]
    order = [place for place in cosines.argsort(descending=True).tolist() if names[place] != "04.png"][:3]
    assert [Path(one["path"]).name for one in folder["nearest"]] == [names[place] for place in order]
    assert [one["similarity"] for one in folder["nearest"]] == pytest.approx(cosines[order].tolist(), abs=1e-5)
    assert folder["nearest"][0]["class"] in ("even", "[odd]")
    assert "sheet" not in folder
    said(["model", "photos", "--out", "found.parquet"], capsys)
    kept = said(["model", "found.parquet", *asked, "--sheet", "near.png", "--map", "map.png"], capsys)
    assert [one["path"] for one in kept["nearest"]] == [one["path"] for one in folder["nearest"]]
    assert (kept["sheet"], kept["map"]) == ("near.png", "map.png")
    for name in ("near.png", "map.png"):
        with Image.open(name) as drawn:
            assert drawn.width > 500
    assert main(["features", "model", "photos", *asked, "--device", "cpu"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0].split() == ["picture", "similarity", "class"]
    assert "sheet: 04-nearest.png" in out
    assert "[odd]" in out or "even" in out


def test_maps_with_points_and_with_pictures(
    photos: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(photos)
    assert main(["features", "model", "photos", "--map", "map.png", "--device", "cpu"]) == 0
    assert capsys.readouterr().out.startswith("map: map.png\n")
    told = said(["model", "photos", "--map", "small.png", "--thumbnails", "--map-by", "tsne"], capsys)
    assert told["map"] == "small.png"
    assert Path("map.png").read_bytes() != Path("small.png").read_bytes()


def test_another_models_file_is_refused(
    photos: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(photos)
    said(["model", "photos", "--out", "found.npz"], capsys)
    save_model(build_model(TINY), photos / "same-shape")
    assert main(["features", "same-shape", "found.npz", "--map", "map.png", "--device", "cpu"]) == 2
    assert "taken with another weights" in capsys.readouterr().err
    said(["model", "photos", "--out", "maps.npz", "--tokens", "map"], capsys)
    assert main(["features", "model", "maps.npz", "--map", "map.png", "--device", "cpu"]) == 2
    assert "one vector per picture" in capsys.readouterr().err


def test_verdicts_on_a_data_set(
    photos: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(photos)
    data = "shapes:size=16,count=200"
    args = ["model", "--knn", data, "--probe", data, "--k", "3", "5", "--lrs", "0.01", "0.1", "--epochs", "3"]
    told = said(args, capsys)
    assert told["knn"]["counts"] == told["probe"]["counts"] == {"train": 136, "val": 24, "test": 40}
    assert [(one["feature"], one["setting"]) for one in told["knn"]["tried"]] == [
        (f"layer{layer}_pooled_after_norm", k) for layer in range(2) for k in (3, 5)
    ]
    assert [one["setting"] for one in told["probe"]["tried"]] == [0.01, 0.1] * 2
    best = max(one["val_accuracy"] for one in told["probe"]["tried"])
    assert told["probe"]["best"]["val_accuracy"] == best
    low, high = told["probe"]["test_accuracy_95"]
    assert low <= told["probe"]["test_accuracy"] <= high
    assert main(["features", *args, "--device", "cpu"]) == 0
    out = capsys.readouterr().out
    assert "nearest neighbours on shapes" in out
    assert "linear probes, 3 epochs" in out
    assert out.count("test accuracy") == 2
    assert "a wider grid (--lrs)" in out


def test_nothing_that_can_be_read_is_a_failure(
    photos: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(photos)
    args = ["features", "model", "photos/even/torn.jpg", "--out", "new/a.npz", "--map", "map.png", "--device", "cpu"]
    assert main(args) == 3
    assert "1 picture could not be read" in capsys.readouterr().out
    assert not Path("map.png").exists()


@pytest.mark.parametrize(
    ("args", "code", "told"),
    [
        ([], 2, "no MODEL named"),
        (["model"], 2, "no IMAGES named"),
        (["model", "photos"], 2, "nothing to do with the features"),
        (["model", "photos", "--knn", "digits"], 2, "nothing to do with the features of these pictures"),
        (["model", "--out", "a.npz", "--knn", "digits"], 2, "no IMAGES named"),
        (["model", "photos", "--out", "a.csv"], 2, ".npz or .parquet"),
        (["model", "photos", "--out", "there.npz/a.npz"], 2, "there.npz' is no folder"),
        (["model", "photos", "--out", "there.npz"], 2, "--overwrite"),
        (["model", "photos", "--map", "a.jpg"], 2, "ends in .png"),
        (["model", "photos", "--map", "photos/a.png"], 2, "among the pictures"),
        (["model", "photos", "--map", "a.png", "--tokens", "patch"], 2, "--tokens pooled, cls or mean"),
        (["model", "photos", "--nearest", "photos/even/00.png", "--layers", "all"], 2, "needs one layer"),
        (["model", "photos", "--nearest", "photos/even/torn.jpg"], 3, "--nearest cannot be read"),
        (["model", "photos", "--nearest", "photos"], 2, "stands for 13 pictures"),
        (["model", "photos", "--out", "a.npz", "--layers", "2"], 2, "layers: expected layers 0 to 1"),
        (["model", "photos", "--out", "a.npz", "--tokens", "clss"], 2, "did you mean 'cls'"),
        (["model", "--knn", "digit"], 2, "did you mean 'digits'"),
        (["model", "--probe", "digits", "--lrs", "-1"], 2, "lrs"),
    ],
)
def test_mistakes_are_told(
    photos: Path,
    args: list[str],
    code: int,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(photos)
    Path("there.npz").write_bytes(b"what was there")
    assert main(["features", *args]) == code
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert told in err
    assert Path("there.npz").read_bytes() == b"what was there"
    assert not Path("a.npz").exists()


def test_pictures_that_are_there_stay(
    photos: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(photos)
    Path("map.png").write_bytes(b"mine")
    args = ["features", "model", "photos", "--map", "map.png", "--device", "cpu"]
    assert main(args) == 2
    assert "is there already" in capsys.readouterr().err
    assert Path("map.png").read_bytes() == b"mine"
    assert main([*args, "--overwrite"]) == 0
    near = ["features", "model", "photos", "--nearest", "photos/even/04.png", "--device", "cpu"]
    assert main(near) == main(near) == 0
    assert Path("04-nearest.png").is_file()
    assert Path("04-nearest-2.png").is_file()
