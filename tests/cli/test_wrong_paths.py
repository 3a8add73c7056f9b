"""A path that leads nowhere, or into the middle of a data set, is answered with the one that was meant."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from PIL import Image

from vitscope.cli.main import main
from vitscope.models.build import build_model
from vitscope.models.config import ViTConfig
from vitscope.weights.folder import save_model


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two classes of pictures, and a model."""
    monkeypatch.chdir(tmp_path)
    for name in ("tench", "springer"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(4):
            Image.new("RGB", (8, 8), (number * 40, 0, 0)).save(tmp_path / "photos" / name / f"{number}.png")
    torch.manual_seed(0)
    model = build_model(ViTConfig(img_size=8, patch_size=4, embed_dim=16, depth=1, num_heads=2, num_classes=2))
    save_model(model, tmp_path / "model", labels=["springer", "tench"])
    return tmp_path


def said(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, list[str]]:
    code = main(list(args))
    out, err = capsys.readouterr()
    return code, out, err.splitlines()


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("photos/tenhc", "the file is missing; did you mean 'photos/tench'?"),
        ("photos\\tench\\1.png", "use / between folders: did you mean 'photos/tench/1.png'?"),
    ],
)
def test_a_picture_that_is_not_there(path: str, meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, "predict", "model", path)
    assert code == 3
    assert meant in out
    _, out, _ = said(capsys, "features", "model", path, "photos/tench", "--out", "found.npz")
    assert meant in out


def test_a_picture_to_explain_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, lines = said(capsys, "explain", "model", "photos/tenhc/1.png")
    assert code == 3
    assert lines[0] == "error: the file is missing"
    assert lines[2] == "to do: did you mean 'photos/tench/1.png'?"
    *_, lines = said(capsys, "explain", "model", "nothing.like.it")
    assert lines[2] == "to do: give another picture"
    *_, lines = said(capsys, "features", "model", "photos", "--nearest", "photos/tench/11.png")
    assert lines[2] == "to do: did you mean 'photos/tench/1.png'?"


def test_where_a_data_set_was_looked_for(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VITSCOPE_DATA", str(here / "model"))
    code, _, lines = said(capsys, "data", "photoz")
    assert code == 2
    assert lines[1:] == [
        f"where: looked in the current folder and {here / 'model'}",
        "to do: did you mean 'photos'?",
    ]
    monkeypatch.delenv("VITSCOPE_DATA")
    *_, lines = said(capsys, "data", "zebra")
    assert lines[1] == "where: looked in the current folder; $VITSCOPE_DATA is not set, and there is no data/ here"


def test_one_class_s_folder_is_not_the_set(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, lines = said(capsys, "train", "--data", "photos/tench", "--model", "vit_tiny")
    assert code == 3
    assert lines[2] == "to do: did you mean 'photos', where each class has a folder?"
    (here / "parts" / "train").mkdir(parents=True)
    (here / "photos").rename(here / "parts" / "train" / "a")
    *_, lines = said(capsys, "data", "parts/train/a/tench")
    assert lines[2] == "to do: did you mean 'parts/train/a', where each class has a folder?"
    monkeypatch.chdir(here / "parts" / "train" / "a")
    *_, lines = said(capsys, "data", "tench")
    assert lines[2] == "to do: did you mean '.', where each class has a folder?"


def test_a_class_s_folder_in_a_part_is_of_the_whole_set(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "photos").rename(here / "train")
    (here / "set").mkdir()
    (here / "train").rename(here / "set" / "train")
    *_, lines = said(capsys, "data", "set/train/tench")
    assert lines[2] == "to do: did you mean 'set', where each class has a folder?"


def test_pictures_without_any_class_are_to_be_sorted(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "alone" / "all").mkdir(parents=True)
    (here / "photos" / "tench").rename(here / "alone" / "all" / "pictures")
    *_, lines = said(capsys, "data", "alone/all/pictures")
    assert lines[2].startswith("to do: sort the pictures into one folder per class")
