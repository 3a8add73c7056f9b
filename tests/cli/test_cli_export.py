"""`vitscope export`: a table for people, JSON for programs, one file and nothing beside it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from cli.conftest import Shell
from vitscope.cli.main import main
from vitscope.models.build import build_model
from vitscope.models.config import ViTConfig
from vitscope.weights.folder import save_model

TINY = ViTConfig(img_size=16, patch_size=8, embed_dim=16, depth=1, num_heads=2, num_classes=3)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    torch.manual_seed(0)
    save_model(build_model(TINY), tmp_path / "model", labels=["cat", "dog [big]", "owl"])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_table_of_what_was_written(folder: Path, shell: Shell) -> None:
    done = shell("export", "model", "--format", "onnx", "--out", "model.onnx")
    assert done.returncode == 0, done.stderr
    rows = dict(line.split("  ", 1) for line in done.stdout.splitlines())
    told = {name: text.strip() for name, text in rows.items()}
    assert list(told) == [
        "export",
        "file",
        "size",
        "takes",
        "answers",
        "opset",
        "tried",
        "off from torch by",
        "same first class",
        "one picture",
    ]
    assert told["takes"] == "images: float32 (batch, 3, 16, 16)"
    assert told["answers"] == "logits: float32 (batch, 3)"
    assert told["opset"] == "20"
    assert told["same first class"] == "10 of 10"
    assert "on 10 photographs, in batches of 1, 2, 7" in told["tried"]
    stages = ["reading model", "tracing ViT", "writing model.onnx", "comparing model.onnx with the model"]
    assert done.stderr.splitlines() == stages
    assert sorted(path.name for path in folder.iterdir()) == ["model", "model.onnx"]


def test_programs_get_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["export", "model", "--out", "new/model.pt2", "--dtype", "bf16", "--img-size", "16", "24", "--pixels"]
    assert main([*command, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["inputs"] == {"images": "uint8 (batch, 3, 16, 24)"}
    assert (told["format"], told["dtype"], told["opset"]) == ("pt2", "bf16", None)
    assert told["bytes"] == (folder / "new/model.pt2").stat().st_size
    found = told["comparison"]
    assert found["largest_difference"] / found["largest_output"] == pytest.approx(found["difference"])
    assert found["difference"] <= found["allowed"] == 0.05
    assert main([*command]) == 2
    assert capsys.readouterr().err.endswith("choose a new place, or pass --overwrite\n")
    assert main([*command, "--overwrite"]) == 0


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        ([], 2, "no MODEL named"),
        (["model"], 2, "no --out named"),
        (["model", "--out", "model"], 2, "ends in .onnx or .pt2"),
        (["model", "--out", "model.onnx", "--format", "pt2"], 2, "name it 'model.pt2'"),
        (["model", "--out", "model.onnx", "--format", "onx"], 2, "onnx"),
        (["model", "--out", "model.onnx", "--opset", "9"], 2, "from 18 to 23"),
        (["model", "--out", "model.onnx", "--dtype", "bf16"], 2, "--format pt2"),
        (["modell", "--out", "model.onnx"], 2, "modell"),
        (["vit_tiny", "--out", "model.onnx"], 2, "no weights come with it"),
        (["model", "--out", "model.pt2", "--images", "nothing.jpg"], 3, "nothing.jpg"),
        (["model", "--out", "model.pt2", "--img-size", "17"], 2, "img_size"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_mistakes_are_told(args: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", *args]) == code
    told = capsys.readouterr().err
    assert "error: " in told
    assert said in told
    assert not list(Path().glob("*.onnx"))
    assert not list(Path().glob("*.pt2"))
