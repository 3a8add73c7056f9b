"""`vitscope convert` in a process of its own: folders, files, flags in any order, refusals in three lines."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from cli.conftest import Shell
from vitscope.cli.convert import places_first
from vitscope.cli.main import main
from vitscope.models.build import build_model
from vitscope.models.config import ViTConfig
from vitscope.weights.folder import load_config, load_labels, save_model
from vitscope.weights.load import load_model

TINY = ViTConfig(img_size=16, patch_size=8, embed_dim=16, depth=1, num_heads=2, num_classes=3)


@pytest.fixture
def model(tmp_path: Path) -> Any:
    torch.manual_seed(0)
    network = build_model(TINY)
    save_model(network, tmp_path / "model", labels=["cat", "dog", "owl"])
    torch.save({"model": network.state_dict()}, tmp_path / "weights.pth")
    return network


def test_a_folder_becomes_a_folder_and_a_certificate_is_shown(model: Any, shell: Shell, tmp_path: Path) -> None:
    done = shell("convert", "model", "out", "--to", "vitscope", "--img-size", "32", "--num-classes", "2")
    assert done.returncode == 0, done.stderr
    assert "resampled: pos_embed" in done.stderr
    for told in (
        "source        model",
        "100 % of the backbone",
        "head.weight 2x16: a new head",
        "the same bit for bit",
    ):
        assert told in done.stdout, told
    written: Any = load_config(tmp_path / "out")
    assert (written.img_size, written.num_classes) == (32, 2)
    assert (tmp_path / "out/certificate.json").exists()


def test_flags_may_stand_between_source_and_out(
    model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code = main(["convert", "weights.pth", "--to", "vitscope", "--model", "model", "out", "--json", "--no-proof"])
    out, err = capsys.readouterr()
    assert code == 0, err
    told = json.loads(out)
    assert told["source"] == "weights.pth"
    assert told["covered_percent"] == 100
    assert told == json.loads((tmp_path / "out/certificate.json").read_text())
    loaded = load_model(tmp_path / "out")
    assert all(torch.equal(tensor, loaded.state_dict()[name]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize(
    ("args", "wanted"),
    [
        ("a b --to timm", "a b --to timm"),
        ("a --to timm b", "a b --to timm"),
        ("--to timm a b", "a b --to timm"),
        ("--to=timm a b", "a b --to=timm"),
        ("a --json b", "a b --json"),
        ("a --no-proof b", "a b --no-proof"),
        ("a --img-size 32 b", "a b --img-size 32"),
        ("a --img-size 32 48 b", "a b --img-size 32 48"),
        ("a --img_size 32 48 --to timm b", "a b --img_size 32 48 --to timm"),
        ("a --patch-size 8 b --num-classes 3", "a b --patch-size 8 --num-classes 3"),
        ("--num-classes 3 10 b", "10 b --num-classes 3"),
        ("--model vit_tiny a b", "a b --model vit_tiny"),
    ],
)
def test_places_come_first(args: str, wanted: str) -> None:
    assert places_first(args.split()) == wanted.split()


def refused(capsys: pytest.CaptureFixture[str], code: int, *args: str) -> str:
    assert main(["convert", *args]) == code
    out, err = capsys.readouterr()
    assert out == ""
    lines = [line for line in err.splitlines() if not line.startswith(("reading ", "writing "))]
    assert lines[0].startswith("error: ")
    assert lines[-1].startswith("to do: ")
    assert "Traceback" not in err
    return err


def test_refusals(model: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    assert "no SOURCE and OUT named" in refused(capsys, 2)
    assert "no OUT named" in refused(capsys, 2, "model")
    assert "did you mean 'timm'?" in refused(capsys, 2, "model", "out", "--to", "tim")
    for word in (("--to", "hf"), ("--to=hf",)):
        assert "did you mean 'huggingface'?" in refused(capsys, 2, "model", "out", *word)
    assert "did you mean '--to'?" in refused(capsys, 2, "model", "out", "-to", "timm")
    assert "did you mean '--img-size'" in refused(capsys, 2, "model", "out", "--image-size", "3")
    assert "expected no more" in refused(capsys, 2, "model", "out", "more")
    assert "did you mean 'model'?" in refused(capsys, 2, "modell", "out")
    assert "does not say which model it is for" in refused(capsys, 2, "weights.pth", "out")
    assert "did you mean 'vit_tiny'?" in refused(capsys, 2, "weights.pth", "out", "--model", "vit_tinny")
    assert "expected a number from 0, received -1" in refused(capsys, 2, "model", "out", "--num-classes", "-1")
    told = refused(capsys, 1, "weights.pth", "out", "--model", "vit_tiny")
    assert "give the config the weights are for" in told
    assert "--allow-partial" not in told  # of which nothing fits
    assert "--dtype: expected" in refused(capsys, 2, "model", "out", "--dtype", "int8")
    assert not (tmp_path / "out").exists()
    told = refused(capsys, 2, "weights.pth", "model", "--model", "model")
    assert "already holds a model" in told
    assert told.endswith("choose a new folder, or pass --overwrite\n")


def test_dtype_and_overwrite(model: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "out")
    assert main(["convert", str(tmp_path / "model"), out]) == 0
    assert main(["convert", str(tmp_path / "model"), out, "--dtype", "bf16", "--overwrite"]) == 0
    loaded = load_model(out)
    assert {tensor.dtype for tensor in loaded.state_dict().values()} == {torch.bfloat16}
    assert load_labels(out) == ["cat", "dog", "owl"]


@pytest.mark.parametrize("width", [120, 80, 60])
def test_the_certificate_fits_the_terminal(
    width: int, model: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.chdir(tmp_path)
    assert main(["convert", "model", "out", "--img-size", "32"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    assert "pos_embed 1x17x16 from 1x5x16" in " ".join(lines)


def test_help_names_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", "--help"]) == 0
    told = capsys.readouterr().out
    for flag in ("--to", "--model", "--img-size", "--num-classes", "--patch-size", "--in-chans", "--dtype"):
        assert flag in told
    for flag in ("--allow-partial", "--no-proof", "--json", "--overwrite"):
        assert flag in told
