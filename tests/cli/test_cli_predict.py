"""`vitscope predict` in a process of its own: tables for people, JSON and CSV for programs, bad pictures told."""

from __future__ import annotations

import csv
import io
import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from cli.conftest import Shell
from vitscope.cli.main import main
from vitscope.infer.predictor import Predictor
from vitscope.models.build import build_model
from vitscope.models.config import ViTConfig
from vitscope.weights.folder import save_model

TINY = ViTConfig(img_size=16, patch_size=8, embed_dim=16, depth=1, num_heads=2, num_classes=3)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    network = build_model(TINY)
    with torch.no_grad():
        network.get_parameter("head.weight").normal_()
    save_model(network, tmp_path / "model", labels=["cat", "dog [big]", "owl"])
    (tmp_path / "photos").mkdir()
    for number in range(3):
        pixels = np.random.default_rng(number).integers(0, 256, (20, 30, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"photos/{number}.png")
    (tmp_path / "photos/torn.jpg").write_bytes(b"\xff\xd8\xff\xe0 torn")
    return tmp_path


def test_a_folder_is_a_table_with_a_line_for_each(photos: Path, shell: Shell) -> None:
    done = shell("predict", "model", "photos")
    assert done.returncode == 0, done.stderr
    first, *lines = done.stdout.splitlines()
    assert first.split() == ["picture", "class", "probability", "then"]
    wanted = Predictor.load(photos / "model", device="cpu").classify(photos / "photos")
    assert len(lines) == 4
    for line, told in zip(lines, wanted, strict=True):
        assert line.startswith(f"photos/{Path(told.path or '').name}")
        assert (told.label or "error: ") in line
        assert told.confidence is None or f"{told.confidence:.1%}" in line
    assert done.stderr == ""


def test_one_picture_is_its_classes(
    photos: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(photos)
    code = main(["predict", "model", "photos/0.png", "--top-k", "2"])
    out, err = capsys.readouterr()
    assert code == 0, err
    first, *lines = out.splitlines()
    assert first.split() == ["class", "probability", "number"]
    assert len(lines) == 2


def test_programs_get_json_and_csv(
    photos: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(photos)
    assert main(["predict", "model", "photos", "--json", "--device", "cpu"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [Path(row["path"]).name for row in found] == ["0.png", "1.png", "2.png", "torn.jpg"]
    assert sum(guess["probability"] for guess in found[0]["top_k"]) == pytest.approx(1.0)
    assert set(found[3]) == {"path", "error"}
    assert main(["predict", "model", "photos/[0-9].png", "photos/torn.jpg", "--csv", "--device", "cpu"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["label"] for row in rows] == [row.get("label", "") for row in found]
    assert float(rows[0]["confidence"]) == pytest.approx(found[0]["confidence"], abs=1e-6)
    assert rows[3]["error"]


def test_csv_has_all_classes_that_were_asked_for(
    photos: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(photos)
    asked = ["predict", "model", "photos/0.png", "photos/torn.jpg", "--device", "cpu", "--top-k"]
    assert main([*asked, "2", "--json"]) == 0
    wanted = json.loads(capsys.readouterr().out)[0]["top_k"]
    assert main([*asked, "2", "--csv"]) == 0
    good, torn = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert list(good)[5:] == ["class_1", "probability_1", "class_2", "probability_2"]
    for place, guess in enumerate(wanted, 1):
        assert good[f"class_{place}"] == guess["label"]
        assert float(good[f"probability_{place}"]) == pytest.approx(guess["probability"], abs=1e-6)
    assert set(list(torn.values())[5:]) == {""}
    assert main([*asked, "9", "--csv"]) == 0
    assert capsys.readouterr().out.splitlines()[0].endswith(",class_3,probability_3")


def test_answers_go_to_a_file_by_its_ending(
    photos: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(photos)
    asked = ["predict", "model", "photos", "--device", "cpu"]
    assert main([*asked, "--json", "--out", "all.json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert main([*asked, "--out", "all.jsonl"]) == 0
    assert capsys.readouterr().out == "wrote all.jsonl: 4 pictures, 1 of them with an error\n"
    assert main([*asked, "--csv", "--out", "all.CSV"]) == 0
    printed = capsys.readouterr().out
    assert json.loads((photos / "all.json").read_text()) == told
    assert [json.loads(line) for line in (photos / "all.jsonl").read_text().splitlines()] == told
    assert (photos / "all.CSV").read_text() == printed
    (photos / "photos/torn.jpg").unlink()
    assert main([*asked, "--out", "all.json"]) == 2
    assert "add --overwrite" in capsys.readouterr().err
    assert json.loads((photos / "all.json").read_text()) == told
    assert main([*asked, "--out", "all.json", "--overwrite"]) == 0
    assert json.loads((photos / "all.json").read_text()) == told[:3]


def test_a_path_that_is_no_text_keeps_its_bytes(
    photos: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(photos)
    (photos / "photos/0.png").rename(photos / "photos" / os.fsdecode(b"\xff.png"))
    asked = ["predict", "model", "photos", "--device", "cpu", "--out"]
    assert main([*asked, "a.csv"]) == main([*asked, "a.json"]) == 0
    assert b"photos/\xff.png," in (photos / "a.csv").read_bytes()
    assert os.fsencode(json.loads((photos / "a.json").read_text())[-1]["path"]) == b"photos/\xff.png"
    assert capsys.readouterr().err == ""


def test_views_and_several_models(
    photos: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(photos)
    assert main(["predict", "model,model", "photos/0.png", "--views", "flip", "--json", "--device", "cpu"]) == 0
    (told,) = json.loads(capsys.readouterr().out)
    (wanted,) = Predictor.load(photos / "model", device="cpu").classify(photos / "photos/0.png", views=["flip"])
    assert told["agreement"] == 1.0
    assert told["confidence"] == pytest.approx(wanted.confidence, abs=1e-6)
    assert main(["predict", "model,model", "photos/0.png", "--weights", "1", "3", "--device", "cpu"]) == 0
    assert "agreement of the models on the first: 100%" in capsys.readouterr().out
    assert main(["predict", "model,model", "photos", "--device", "cpu"]) == 0
    assert "agreement" in capsys.readouterr().out.splitlines()[0]


def test_commas_stand_between_models_or_in_a_folders_name(
    photos: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(photos)
    (photos / "cats,dogs").symlink_to("model")
    assert main(["predict", "cats,dogs", "photos/0.png", "--json", "--device", "cpu"]) == 0
    assert "agreement" not in json.loads(capsys.readouterr().out)[0]
    assert main(["predict", "model", "photos/0.png", "--out", "new/folder/said.csv", "--device", "cpu"]) == 0
    assert Path("new/folder/said.csv").is_file()
    capsys.readouterr()
    assert main(["predict", "model, model", "photos/0.png", "--json", "--device", "cpu"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["agreement"] == 1.0


def test_nothing_that_can_be_read_is_a_failure(
    photos: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(photos)
    assert main(["predict", "model", "photos/torn.jpg", "--device", "cpu"]) == 3
    assert "error: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        ([], 2, "no MODEL named"),
        (["model"], 2, "no IMAGES named"),
        (["model", "photos", "--top-k", "0"], 2, "top_k"),
        (["model", "photos", "--csv", "--json"], 2, "one of --csv and --json"),
        (["modell", "photos"], 2, "modell"),
        (["model", "photos", "--temperature", "0"], 2, "temperature"),
        (["model,model", "photos", "--weights", "1"], 2, "weights"),
        (["model", "photos", "--weights", "1", "2"], 2, "give a weight for each model"),
        (["model,", "photos"], 2, "expected a model, or several with commas between"),
        (["", "photos"], 2, "expected a model, or several with commas between"),
        (["model", ""], 3, "received an empty text"),
        (["model", "empty"], 3, "there are no pictures in"),
        (["model", "photos", "--out", "a.xlsx"], 2, "--out a.csv"),
        (["model", "photos", "--out", "photos/torn.jpg/a.csv"], 2, "torn.jpg' is no folder"),
    ],
)
def test_mistakes_are_told(
    photos: Path,
    args: list[str],
    code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(photos)
    (photos / "empty").mkdir()
    assert main(["predict", *args]) == code
    told = capsys.readouterr().err
    assert told.startswith("error: ")
    assert said in told


def test_weights_alone_are_told_what_to_do_with(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save(build_model(TINY).state_dict(), photos / "bare.pth")
    for verb in ("predict", "explain"):
        assert main([verb, str(photos / "bare.pth"), str(photos / "photos/0.png")]) == 2
        assert "bare.pth FOLDER --model NAME`" in capsys.readouterr().err
