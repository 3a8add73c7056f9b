"""`vitscope bench`: a number for everybody, and nothing that was asked for is ignored."""

from __future__ import annotations

import functools
import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from cli.conftest import Shell
from vitscope.cli.bench import BenchCommand
from vitscope.cli.bench_cheaper import print_ways
from vitscope.cli.main import main
from vitscope.infer.cheaper.report import Outcome, measure_ways
from vitscope.infer.cheaper.way import PLAIN, Way
from vitscope.models.build import build_model
from vitscope.models.config import ViTConfig
from vitscope.weights.folder import save_model

SMALL = ViTConfig(img_size=16, patch_size=8, embed_dim=16, depth=1, num_heads=2, num_classes=3, drop_path_rate=0.1)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a model and pictures are, and the command finds itself. No timing lasts longer than it must."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("vitscope.cli.bench_tables.LEAST_SECONDS", 0.01)
    hasty = functools.partial(measure_ways, least_seconds=0.01)
    monkeypatch.setattr("vitscope.cli.bench_cheaper.measure_ways", hasty)
    torch.manual_seed(0)
    save_model(build_model(SMALL), tmp_path / "model")
    (tmp_path / "photos").mkdir()
    for number in range(6):
        pixels = np.random.default_rng(number).integers(0, 256, (20, 30, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"photos/{number}.png")
    (tmp_path / "photos/torn.jpg").write_bytes(b"\xff\xd8\xff\xe0 torn")
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_equal_work_is_proved_and_timed_for_all(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("timm")
    pytest.importorskip("transformers")
    flags = ("--batch", "1", "2", "--against", "timm,transformers", "--train", "--rounds", "2", "--device", "cpu")
    assert main(["bench", "model", *flags, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    lines = {(row["work"], row["batch"], row["who"]): row for row in told["rows"]}
    assert len(lines) == 2 * 2 * 3
    for (work, _, who), row in lines.items():
        assert row["images_per_s"] > 0
        assert ("latency_ms_p95" in row) == (work == "inference")
        assert ("ours_over_theirs" in row) == (who != "ours")
    assert told["equal_work"]["problems"] == {}
    assert set(told["equal_work"]["logit_difference"]) == {"timm", "transformers"}


def test_a_model_by_its_name_is_a_table(shell: Shell) -> None:
    """In a process of its own, as a user runs it."""
    done = shell("bench", "guide_tiny", "--batch", "1", "--rounds", "1", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    assert "guide_tiny in float32" in done.stdout
    assert any(line.split()[:4] == ["inference", "eager", "1", "ours"] for line in done.stdout.splitlines())
    assert "ours is" not in done.stdout


@pytest.mark.usefixtures("folder")
def test_settings_of_a_named_model_are_flags(capsys: pytest.CaptureFixture[str]) -> None:
    smaller = ["--model.depth", "1", "--model.img-size", "16", "--model.drop-path-rate", "0"]
    args = ["bench", "--batch", "1", "2", "vit_tiny", *smaller, "--rounds", "1", "--device", "cpu"]
    assert main([*args, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["model"], told["settings"]) == ("vit_tiny", {"depth": 1, "img_size": 16})
    assert [row["batch"] for row in told["rows"]] == [1, 2]
    assert main(args) == 0
    assert capsys.readouterr().out.startswith("vit_tiny img_size=16 depth=1 in float32")


@pytest.mark.usefixtures("folder")
def test_ways_are_compared_on_the_users_pictures(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torchao")
    flags = ("--cheaper", "--images", "photos", "--ways", "bf16", "int8", "--batch", "4", "--rounds", "1")
    assert main(["bench", "model", *flags, "--sensitivity", "--device", "cpu", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["pictures"] == 6
    assert "torn.jpg" in told["bad_pictures"][0]
    assert [way["way"] for way in told["ways"]][:3] == ["fp32 eager", "bf16 eager", "int8 eager"]
    assert {one["layer"] for one in told["sensitivity"]} >= {"head", "blocks.0.attn.qkv"}
    assert {way["accuracy"] for way in told["ways"]} == {None}

    assert main(["bench", "model", *flags, "--device", "cpu"]) == 0
    table = capsys.readouterr().out
    assert "--batch-size 4`" in table
    assert "accuracy" not in table


@pytest.mark.usefixtures("folder")
def test_classes_matched_by_number_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    save_model(build_model(replace(SMALL, num_classes=10)), "ten")
    flags = ("--cheaper", "--data", "shapes:size=16,count=200", "--ways", "fp32", "--batch", "4", "--rounds", "1")
    assert main(["bench", "ten", *flags, "--device", "cpu", "--json"]) == 0
    out, err = capsys.readouterr()
    assert "warning: the model does not name its classes" in err
    assert json.loads(out)["ways"][0]["accuracy"] is not None


def test_only_a_way_that_is_worse_beyond_chance_is_called_so(capsys: pytest.CaptureFixture[str]) -> None:
    def outcome(way: str, *, lost: int | None, won: int | None) -> Outcome:
        return Outcome(Way.named(way), accuracy=0.5, worse=lost, better=won, batch_seconds=[1.0], single_seconds=[1.0])

    found = [outcome("fp32", lost=0, won=0), outcome("bf16", lost=9, won=0), outcome("fp16", lost=15, won=1)]
    ways = [one.to_dict(found[0]) for one in found]
    assert [way["chance_worse"] for way in ways] == pytest.approx([1.0, 2**-9, 17 * 2**-16])
    unnamed = outcome("int8", lost=None, won=None).to_dict(found[0])
    assert unnamed["chance_worse"] is None
    told = {
        "pictures": 64,
        "ways": [*ways, unnamed],
        "left_out": [],
        "bad_pictures": [],
        "proposed": {"for_many": asdict(PLAIN), "for_one": asdict(PLAIN)},
    }
    print_ways(BenchCommand(name="mine"), {"hardware": "a CPU", "versions": ""}, told)
    worse = [line for line in capsys.readouterr().out.splitlines() if "worse" in line]
    assert worse == ["fp16 eager is really worse: 15 pictures lost for 1 won is hardly chance (3e-04)"]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((), "no MODEL named"),
        (("vit_tiny", "--against", "tim"), "did you mean 'timm'?"),
        (("vit_tiny", "--images", "x"), "expected --cheaper beside it"),
        (("vit_tiny", "--cheaper"), "either --data or --images"),
        (("vit_tiny", "--cheaper", "--images", "x", "--train"), "no --cheaper beside it"),
        (("vit_tiny", "--batch", "0"), "numbers from 1"),
        (("mae_vit_base_patch16",), "has no classes"),
        (("vit_tinny",), "did you mean 'vit_tiny'?"),
        (("vit_tinny", "--model.depth", "2"), "did you mean 'vit_tiny'?"),
        (("vit_tiny", "--model.dpeth", "2"), "did you mean '--model.depth'?"),
        (("vit_tiny", "--depth", "2"), "did you mean '--model.depth'?"),
        (("vit_tiny", "--model.embed-dim", "7"), "embed_dim"),
        (("runs/first", "--model.depth", "2"), "`vitscope bench vit_small --model.depth ...`"),
    ],
)
def test_what_cannot_be_meant_is_refused(args: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *args]) == 2
    assert said in capsys.readouterr().err
