"""`vitscope explain`: words, tables and files for people, JSON for programs; nothing is replaced unasked."""

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
from vitscope.infer.explain.explain import explain
from vitscope.infer.predictor import Predictor
from vitscope.models.build import build_model
from vitscope.models.config import CNNConfig, LSTMConfig, SwinConfig, ViTConfig
from vitscope.weights.folder import save_model

TINY = ViTConfig(img_size=32, patch_size=8, embed_dim=16, depth=2, num_heads=2, num_classes=3)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    torch.manual_seed(0)
    network: Any = build_model(TINY)
    with torch.no_grad():
        network.head.weight.normal_()
        for block in network.blocks:
            block.attn.qkv.weight.mul_(20)
    save_model(network, tmp_path / "model", labels=["cat", "dog [big]", "owl"])
    pixels = np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "photo.png")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def pictures(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.png") if path.name != "photo.png")


def test_in_words_with_tables(place: Path, shell: Shell) -> None:
    done = shell("explain", "model", "photo.png", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    found = explain(Predictor.load(place / "model", device="cpu"), place / "photo.png")
    assert found.prediction is not None
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"the model says {found.prediction.label} {found.prediction.confidence:.1%}")
    assert lines[1] == "map: attention, layer 1, mean of 2 heads; where the class token looks"
    assert lines[2].startswith(f"faithfulness {found.faithfulness}; by the probability of '{found.prediction.label}'")
    assert "±" in lines[2]
    assert ("better than chance" in lines[3]) or ("worse than chance" in lines[3])
    tables = [line.split() for line in lines]
    assert tables.count(["layer", "head", "0", "head", "1"]) == 2
    for layer in found.heads:
        assert [str(layer.layer), *(f"{value:.1f}" for value in layer.distance_px)] in tables
        assert [str(layer.layer), *(f"{value:.2f}" for value in layer.entropy_bits)] in tables
    assert "entropy of a look in bits (0 one token, 4.09 all alike)" in lines, "log2 of 17, in the digits of the rest"
    assert lines[-1] == "wrote photo-attention.png"
    assert pictures(place) == ["photo-attention.png"]


def test_json_has_everything(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["explain", "model", "photo.png", "--method", "gradient_rollout", "--target", "owl", "--device", "cpu"]
    assert main([*words, "--json", "--sheet", "--tokens", "--feature-maps", "--overlay", "--out", "seen"]) == 0
    told = json.loads(capsys.readouterr().out)
    found = explain(Predictor.load(place / "model", device="cpu"), place / "photo.png", "gradient_rollout", target=2)
    assert told["target"]["label"] == "owl"
    np.testing.assert_allclose(told["map"], found.map, rtol=1e-5)
    assert found.faithfulness is not None
    assert told["faithfulness"]["score"] == pytest.approx(found.faithfulness.score, abs=1e-6)
    assert len(told["faithfulness"]["chance"]) == 19
    assert told["faithfulness"]["verdict"] == found.faithfulness.verdict
    assert len(told["heads"]) == 2
    assert told["size"] == {"height": 40, "width": 60}
    assert told["seen"] == pytest.approx({"left": 10, "top": 0, "right": 50, "bottom": 40})
    name = "seen/photo-gradient-rollout"
    assert told["files"] == [
        f"{name}.png",
        *(f"{name}-{e}.png" for e in ("sheet", "tokens", "feature-maps", "overlay")),
    ]
    for file in told["files"]:
        with Image.open(file) as image:
            image.load()
    with Image.open(f"{name}-overlay.png") as overlay:
        assert overlay.size == (60, 40)
        assert np.array_equal(np.asarray(overlay), np.asarray(found.overlay()))


def test_names_are_numbered_and_files_are_kept(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["explain", "model", "photo.png", "--device", "cpu"]
    for _ in range(2):
        assert main(words) == 0
    assert pictures(place) == ["photo-attention-2.png", "photo-attention.png"]
    (place / "mine.png").write_bytes(b"mine")
    assert main([*words, "--out", "mine.png"]) == 2
    said = capsys.readouterr().err
    assert "'mine.png' is there already" in said
    assert "--overwrite" in said
    assert (place / "mine.png").read_bytes() == b"mine"
    (place / "other-sheet.png").write_bytes(b"mine")
    assert main([*words, "--out", "other.png", "--sheet"]) == 2
    assert not (place / "other.png").exists()
    assert main([*words, "--out", "mine.png", "--overwrite"]) == 0
    assert (place / "mine.png").read_bytes() != b"mine"
    before = (place / "photo.png").read_bytes()
    assert main([*words, "--out", "photo.png", "--overwrite"]) == 2
    assert (place / "photo.png").read_bytes() == before


@pytest.mark.parametrize(
    ("words", "said", "code"),
    [
        (["explain"], "no MODEL named", 2),
        (["explain", "model"], "no IMAGE named", 2),
        (["explain", "model", "photo.png", "--out", "map.jpg"], "ends in .png", 2),
        (["explain", "model", "photo.png", "--layer", "7"], "layers: expected numbers from -2 to 1", 2),
        (["explain", "model", "photo.png", "--head", "2"], "head: expected a number from -2 to 1", 2),
        (["explain", "model", "photo.png", "--head", "0", "--method", "rollout"], "--method attention beside it", 2),
        (["explain", "model", "photo.png", "--target", "cta"], "did you mean 'cat'?", 2),
        (["explain", "model", "photo.png", "--methd", "rollout"], "unknown flag '--methd'", 2),
        (["explain", "model", "photo.png", "--out", "photo.png/map"], "photo.png' is no folder", 2),
        (["explain", "model", "none.png"], "to do: give another picture", 3),
        (["explain", "nowhere", "photo.png"], "'nowhere' does not exist", 2),
    ],
)
def test_mistakes(words: list[str], said: str, code: int, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words, "--device", "cpu"] if len(words) > 2 else words) == code
    out, err = capsys.readouterr()
    assert said in err
    assert out == ""
    assert pictures(place) == []


def test_a_cnn_shows_its_feature_maps(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_model(build_model(CNNConfig(img_size=16, in_chans=3, widths=(4, 8), num_classes=2)), place / "cnn")
    assert main(["explain", "cnn", "photo.png", "--device", "cpu"]) == 0
    out = capsys.readouterr().out
    assert "filters of stages.0.conv1: 4 of 3 x 3 x 3" in out
    assert "stage 1: 8 maps of 4 x 4" in out
    assert pictures(place) == ["photo-feature-maps.png"]
    assert main(["explain", "cnn", "photo.png", "--method", "rollout", "--device", "cpu"]) == 2
    assert "CNN has no attention, and so there is no --method" in capsys.readouterr().err
    assert main(["explain", "cnn", "photo.png", "--json", "--device", "cpu"]) == 0
    assert [stage["shape"] for stage in json.loads(capsys.readouterr().out)["stages"]] == [[4, 8, 8], [8, 4, 4]]


def test_swin_and_lstm_are_told_what_they_can_have(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    swin = SwinConfig(img_size=32, embed_dim=16, depths=(1,), num_heads=(2,), window_size=4, num_classes=2)
    save_model(build_model(swin), place / "swin")
    assert main(["explain", "swin", "photo.png", "--device", "cpu"]) == 0
    out, said = capsys.readouterr()
    assert said.startswith("Swin attends inside small windows")
    assert said.endswith("instead of a map, these are its filters and feature maps\n")
    assert "stage 0: 16 maps of 8 x 8" in out
    assert pictures(place) == ["photo-feature-maps.png"]
    assert main(["explain", "swin", "photo.png", "--feature-maps", "--device", "cpu"]) == 0
    assert capsys.readouterr() == (out.replace("-maps.png", "-maps-2.png"), "")
    assert main(["explain", "swin", "photo.png", "--head", "0", "--sheet", "--device", "cpu"]) == 2
    assert "leave out --head, --sheet to see" in capsys.readouterr().err
    save_model(build_model(LSTMConfig(img_size=16, in_chans=3, embed_dim=8, num_classes=2)), place / "lstm")
    assert main(["explain", "lstm", "photo.png", "--device", "cpu"]) == 2
    assert "neither" in capsys.readouterr().err
