"""`vitscope train` says what it chose by itself, and what its figures are of."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vitscope.cli.main import main
from vitscope.cli.train import report_of
from vitscope.core.run_folder import RunFolder
from vitscope.core.yaml import to_yaml
from vitscope.train import fit as engine
from vitscope.train.config import LoopConfig, TrainConfig


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Settings of the run the engine is said to have made, by their names in `loop`."""
    monkeypatch.chdir(tmp_path)
    loop: dict[str, str] = {}

    def fit(config: TrainConfig, remarks: list[str], **_: Any) -> Any:
        sys.stderr.writelines(f"{remark}\n" for remark in remarks)
        run = RunFolder.create(tmp_path / "runs/new", name="new")
        run.config_path.write_text(to_yaml(TrainConfig(data=config.data, loop=LoopConfig(**loop))))  # type: ignore[arg-type]
        best = {"step": 30, "epoch": 2, "val/accuracy": 0.0972, "val/loss": 2.2}
        return SimpleNamespace(folder=run, best=best, test=None, model_folder=run.model, exit_code=0, state="finished")

    monkeypatch.setattr(engine, "fit", fit)
    return loop


@pytest.mark.parametrize(
    ("loop", "which"),
    [
        ({"monitor": "val/loss"}, "lowest val/loss"),
        ({}, "highest val/accuracy"),
        ({"monitor": "train/epoch_loss", "monitor_mode": "max"}, "highest train/epoch_loss"),
    ],
)
def test_the_best_epoch_is_told_by_what_it_is_the_best(
    loop: dict[str, str], which: str, settings: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """It may have had a worse accuracy than another."""
    settings.update(loop)
    assert main(["train", "digits_vit"]) == 0
    assert capsys.readouterr().out.startswith(f"best epoch 2 ({which}): validation accuracy 9.72%\n")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ([], "no --model given: training vit_tiny for 100 epochs (change with --epochs)\n"),
        (["--epochs", "1"], "no --model given: training vit_tiny for 1 epoch\n"),
        (["--model", "vit_tiny"], ""),
        (["--model.name", "vit_tiny"], ""),
    ],
)
@pytest.mark.usefixtures("settings")
def test_a_model_nobody_named_is_named(args: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--data", "digits", *args, "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == said
    assert json.loads(out)["monitor"] == "val/accuracy"


def test_a_run_without_settings_is_judged_as_runs_are(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", name="run")
    done: Any = SimpleNamespace(folder=run, best=None, test=None, model_folder=run.model, state="finished")
    report = report_of(done)
    assert (report["monitor"], report["larger_is_better"]) == ("val/accuracy", True)


@pytest.mark.parametrize(
    ("args", "fix"),
    [
        ("--data digits --data.mean 0.5,0.5,0.5", "`--data.mean 0.5 0.5 0.5`"),
        ("--data digits --data.mean [0.5,0.5,0.5]", "`--data.mean 0.5 0.5 0.5`"),
        ("--data digits --model.img-size 64,64", "`--model.img-size 64 64`"),
        ("--data digits --lr 0,001", "`--lr 0.001`"),
        ("--data digits --from", "`--from runs/first`, for example"),
        ("--data", "`--data photos`, for example"),
        ("--data digits --pretrained", "did you mean '--from timm/NAME'?"),
    ],
)
def test_a_value_that_is_none_is_answered_with_one(args: str, fix: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", *args.split()]) == 2
    assert capsys.readouterr().err.splitlines()[2] == f"to do: {fix}"


@pytest.mark.parametrize("flag", ["list", "json", "overwrite", "resume", "print-config", "monitor", "deterministic"])
def test_switches_have_no_negative_form(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", f"--no-{flag}"]) == 2
    assert "--no-" not in capsys.readouterr().err.splitlines()[2]
