"""`vitscope doctor`: what is typed, what is answered, and with which exit code."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from doctor import stand_ins
from vitscope.cli.main import main
from vitscope.doctor import checks, settings_door
from vitscope.doctor.check import Check
from vitscope.doctor.finding import Change, Finding, Seen
from vitscope.doctor.report.wrap import width_of
from vitscope.train.config.read import read_train_config

SMALL = ("digits_vit", "--model.depth", "1", "--device", "cpu")


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    stand_ins.know_stand_ins(monkeypatch)
    use(monkeypatch, *stand_ins.CHECKS, Check("plain_check", "forward", lambda patient: Seen({"a": 1}), is_quick=False))


def use(monkeypatch: pytest.MonkeyPatch, *asked: Check) -> None:
    monkeypatch.setattr(settings_door, "CHECKS", asked)
    monkeypatch.setattr(checks, "CHECKS", asked)


def doctor(capsys: pytest.CaptureFixture[str], *args: str, code: int = 0) -> tuple[str, str]:
    ended = main(["doctor", *args])
    out, err = capsys.readouterr()
    assert ended == code, f"{out}\n{err}"
    return out, err


def found(capsys: pytest.CaptureFixture[str], *args: str, code: int = 0) -> dict[str, Any]:
    return json.loads(doctor(capsys, *args, "--json", code=code)[0])


def test_healthy_and_unwell_both_exit_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    out, err = doctor(capsys, *SMALL)
    assert out.startswith("healthy. Nothing was found")
    assert err.splitlines() == ["checking stand_in_rate_check", "checking plain_check"]
    out, _ = doctor(capsys, *SMALL, "--lr", "0.5")
    assert out.startswith("unwell. Most likely: The learning rate is too high")
    assert "`vitscope doctor digits_vit --model.depth 1 --device cpu --lr 0.5 --fix better.yaml`" in " ".join(
        out.split()
    )
    assert max(map(width_of, out.splitlines())) <= 80


def test_what_is_only_possible_has_nothing_to_fix(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    finding = Finding("stand_in_labels", 0.4, {"share": 0.4}, (Change("optim.lr", 1e-3),))
    use(monkeypatch, Check("plain_check", "forward", lambda patient: Seen(findings=[finding])))
    out, _ = doctor(capsys, *SMALL)
    assert out.startswith("cannot tell")
    assert "--optim.lr 0.001" in out
    assert "--fix" not in out


def test_chinese_is_chinese_throughout(capsys: pytest.CaptureFixture[str]) -> None:
    out, err = doctor(capsys, *SMALL, "--lr", "0.5", "--lang", "zh")
    assert out.startswith("有问题")
    assert err.startswith("正在检查 stand_in_rate_check")
    assert "可将这些设置写入文件" in out


@pytest.mark.parametrize(
    "args",
    [
        ["--lr", "0.5"],
        ["--optim.lr", "0.5"],
        ["--optim.lr=0.5", "--quick"],
    ],
    ids=" ".join,
)
def test_settings_are_read_as_train_reads_them(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    data = found(capsys, *SMALL, *args)
    assert data["verdict"] == "unwell"
    assert data["subject"]["lr"] == 0.5
    assert data["subject"]["source"] == "digits_vit"


def test_data_and_model_alone(capsys: pytest.CaptureFixture[str]) -> None:
    data = found(capsys, "--data", "digits", "--model", "mnist_cnn", "--lr", "0.5", "--quick", "--batch-size", "32")
    assert data["subject"]["model"] == "mnist_cnn"
    assert data["subject"]["batch_size"] == 32
    assert [check["outcome"] for check in data["checks"]] == ["found something", "not asked"]


def test_a_file_and_only_some_checks(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.yaml").write_text(
        "data: digits\nmodel: {name: vit_tiny, img_size: 8, patch_size: 4, depth: 1, in_chans: 1}\n"
    )
    for only in ("forward", "plain_check", "plain-check"):
        code = int(only == "forward")  # then there was nothing it could examine
        data = found(capsys, "--only", only, "--quick", "mine.yaml", code=code)
        outcomes = {check["name"]: check["outcome"] for check in data["checks"]}
        wanted = "not asked" if only == "forward" else "fine"  # of a stage, quick asks the quick ones; by name, all
        assert outcomes == {"stand_in_rate_check": "not asked", "plain_check": wanted}, only


def test_the_page_and_the_corrected_settings(capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = doctor(capsys, *SMALL, "--lr", "0.5", "--html", "page.html", "--fix", "better.yaml")
    assert Path("page.html").read_text().startswith("<!doctype html>")
    assert "wrote better.yaml: 1 setting changed" in out
    assert "examine it again: `vitscope doctor better.yaml`" in out
    assert read_train_config("better.yaml").optim.lr == 1e-3
    data = found(capsys, "better.yaml", "--fix", "again.yaml")
    assert data["verdict"] == "healthy"
    assert data["files"] == {"fix": None}
    assert not Path("again.yaml").exists()
    out, _ = doctor(capsys, "better.yaml", "--fix", "again.yaml")
    assert "nothing to change: again.yaml was not written" in out


def test_what_no_setting_mends(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    sure = Check(
        "labels_check",
        "data",
        lambda patient: Seen(findings=[stand_ins.Finding("stand_in_labels", 0.9, {"share": 1.0})]),
    )
    use(monkeypatch, sure)
    out, _ = doctor(capsys, *SMALL, "--fix", "better.yaml")
    assert "no setting mends what was found: better.yaml was not written" in out
    assert "not by settings: Labels do not fit the pictures. Look at the pictures." in " ".join(out.split())
    assert not Path("better.yaml").exists()


def test_a_run_is_examined_by_what_it_wrote(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("vitscope.train.finish._draw", lambda *_: None)
    assert main(["train", *SMALL, "--epochs", "1", "--out", "runs/first", "--lr", "0.02"]) == 0
    capsys.readouterr()
    data = found(capsys, "--quick", "runs/first")
    assert data["subject"]["run"].endswith("runs/first")
    assert {check["name"] for check in data["checks"]} >= {"curve", "divergence", "gradient_norms"}
    (curve,) = [check for check in data["checks"] if check["name"] == "curve"]
    assert curve["outcome"] == "left out"  # one epoch is no curve
    assert data["verdict"] == "cannot tell"
    assert found(capsys, "runs/first", "--only", "gradient-norms")["verdict"] == "healthy"
    _, err = doctor(capsys, "runs/first", "--only", "data", code=2)
    assert "curve, learning_rate, gradient_norms, layers" in err
    _, err = doctor(capsys, "runs/first", "--lr", "0.1", "--optim.clip-norm", "1", code=2)
    assert "a run has settings of its own, and so there is no --lr, --optim.clip-norm" in err
    assert "runs/first/config.yaml" in err
    _, err = doctor(capsys, "--replay", "runs/first", code=2)
    assert "kept no bad step" in err
    _, err = doctor(capsys, "runs/frist", code=2)
    assert "did you mean 'runs/first'" in err


def test_it_fails_only_where_nothing_could_be_examined(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fails = Check("broken_check", "forward", stand_ins.fails)
    use(monkeypatch, fails)
    out, _ = doctor(capsys, *SMALL, code=1)
    assert "failed: ValueError: no such <layer>" in out
    use(monkeypatch, fails, stand_ins.RATE_CHECK)
    assert found(capsys, *SMALL)["verdict"] == "cannot tell"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["digits_vti"], "did you mean 'digits_vit'"),
        (["nosuch"], "there is no 'nosuch'"),
        (["runs/nosuch"], "there is no 'runs/nosuch'"),
        (["."], "'.' is neither a recipe, a YAML file nor a run's folder"),
        (["digits_vit", "--only", "plain_chek"], "did you mean 'plain_check'"),
        (["digits_vit", "--quik"], "--quick"),
        (["digits_vit", "--lang", "fr"], "--lang"),
        (["digits_vit", "--replay", "x", "--quick"], "no --replay beside it"),
        (["digits_vit", "--fix", "taken.yaml"], "is there already"),
        (["digits_vit", "--html", "."], "is a folder"),
        ([], "expected a data set"),
        (["finetune", "--data", "digits"], "needs --from"),
        (["--data", "nosuch"], "unknown data set"),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else None,
)
def test_mistakes_are_answered(args: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("taken.yaml").write_text("mine")
    out, err = doctor(capsys, *args, code=2)
    assert out == ""
    assert words in err
    assert Path("taken.yaml").read_text() == "mine"


def learnt_run(path: Path, settings: str) -> Path:
    """A folder as a run that learnt well leaves it."""
    path.mkdir(parents=True)
    rows = [
        {"step": epoch, "epoch": epoch, "time": 0.0, "train/epoch_loss": loss, "val/loss": loss}
        for epoch, loss in enumerate((2.2 * 0.75**place + 0.05 for place in range(20)), start=1)
    ]
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (path / "status.json").write_text(json.dumps({"state": "finished", "step": 20}))
    (path / "config.yaml").write_text(settings)
    return path


@pytest.mark.parametrize("language", ["en", "zh"])
def test_settings_and_their_own_run_do_not_contradict_each_other_in_silence(
    language: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["train", *SMALL, "--lr", "0.5", "--print-config"])
    run = learnt_run(Path("runs/fine"), capsys.readouterr().out)
    out, _ = doctor(capsys, str(run / "config.yaml"), "--lang", language)
    assert "`vitscope doctor runs/fine`" in " ".join(out.split())
    assert ("its record is called: healthy" if language == "en" else "其记录的结论是：健康") in " ".join(out.split())
    assert found(capsys, str(run / "config.yaml"))["run_beside"] == {"run": "runs/fine", "verdict": "healthy"}
    other = found(capsys, str(run / "config.yaml"), "--lr", "0.4")
    assert (other["verdict"], "run_beside" in other) == ("unwell", False), "these are other settings"
    agreed = found(capsys, str(run / "config.yaml"), "--only", "plain_check")
    assert (agreed["verdict"], "run_beside" in agreed) == ("healthy", False)


def test_pictures_are_named_by_data(capsys: pytest.CaptureFixture[str]) -> None:
    Path("my photos/cat").mkdir(parents=True)
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save("my photos/cat/0.png")
    _, err = doctor(capsys, "my photos", code=2)
    assert "expected a recipe, a YAML file or a run's folder, received the folder of pictures 'my photos'" in err
    assert "`vitscope doctor --data 'my photos'`" in err
    np.savez("scans.npz", images=np.zeros((4, 8, 8), np.uint8), labels=np.arange(4))
    _, err = doctor(capsys, "scans.npz", "--model", "vit_tiny", code=2)
    assert "`vitscope doctor --data scans.npz --model vit_tiny`" in err
    _, err = doctor(capsys, "my photos/cat/0.png", code=2)
    assert "or a run's folder, received the picture 'my photos/cat/0.png'" in err
    assert "`vitscope doctor --data FOLDER` takes many" in err
    assert len(err.splitlines()) == 3
    _, err = doctor(capsys, "shapes:size=32,count=600", "--model", "vit_tiny", code=2)
    assert "received the data set 'shapes:size=32,count=600'" in err
    assert "`vitscope doctor --data shapes:size=32,count=600 --model vit_tiny`" in err
    assert len(err.splitlines()) == 3


def test_a_capture_that_is_missing_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    _, err = doctor(capsys, "--replay", "runs/nosuch", code=1)
    assert "there is no '" in err
    assert "runs/nosuch'" in err
    Path("empty").mkdir()
    _, more = doctor(capsys, "--replay", "empty", code=1)
    assert "it has no step.json" in more
    assert "Errno" not in err + more


def test_data_that_cannot_be_opened(capsys: pytest.CaptureFixture[str]) -> None:
    Path("photos/cat").mkdir(parents=True)
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save("photos/cat/0.png")
    _, err = doctor(capsys, "--data", "photos", code=3)
    assert "to do:" in err


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_bad_step_is_taken_again(language: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is injected: the normalisation itself sends pictures to infinity."""
    Path("bad.yaml").write_text(
        "data: {name: digits, std: [1.0e-39], batch_size: 256}\n"
        "model: {name: vit_tiny, img_size: 8, patch_size: 4, in_chans: 1, embed_dim: 32, depth: 1, num_heads: 2}\n"
        "loop: {epochs: 1}\n"
    )
    assert main(["train", "bad.yaml", "--out", "run", "--device", "cpu"]) == 4
    capsys.readouterr()
    place = sorted(Path("run/diagnostics").iterdir())[0]
    out, _ = doctor(capsys, "--replay", str(place), "--lang", language)
    assert "patch_embed.proj" in out
    assert max(map(width_of, out.splitlines())) <= 80
    assert bool(re.search("[\u4e00-\u9fff]", out)) == (language == "zh")
    data = found(capsys, "--replay", "run")
    assert data["is_bad"]
    assert data["first_bad_module"] == "patch_embed.proj"
    assert data["bad_pictures"] or data["operation"]["layer"] == "patch_embed.proj"
