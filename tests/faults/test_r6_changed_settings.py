"""R6: resumed with other settings. What may change is applied and said, what may not is refused and nothing touched."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from faults.train_process import (
    STEPS_PER_EPOCH,
    differences,
    everything,
    rows,
    start_warm,
    status,
    train,
    uninterrupted,
    write_settings,
)
from faults.train_process import stopped as make_stopped

STOPPED_AT = 6


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in the middle of its first epoch, with its settings beside it. Copied by each test."""
    folder = tmp_path_factory.mktemp("stopped")
    make_stopped(folder, STOPPED_AT)
    return folder


@pytest.fixture
def run(stopped: Path, tmp_path: Path) -> Path:
    return shutil.copytree(stopped, tmp_path / "copy") / "run"


@pytest.mark.parametrize(
    ("flags", "key", "old", "new"),
    [
        (("--model.depth", "3"), "model.depth", "2", "3"),
        (("--model.drop-rate", "0.3"), "model.drop_rate", "0.1", "0.3"),
        (("--batch-size", "64"), "data.batch_size", "72", "64"),
        (("--seed", "1"), "loop.seed", "0", "1"),
        (("--optim.name", "sgd"), "optim.name", "'adamw'", "'sgd'"),
        (("--loop.ema-decay", "0.5"), "loop.ema_decay", "0.95", "0.5"),
        (("--data.val-share", "0.2", "--loop.epochs", "9"), "data.val_share", "0.1", "0.2"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_makes_it_another_run_is_refused(flags: tuple[str, ...], key: str, old: str, new: str, run: Path) -> None:
    before = everything(run)
    refused = train("--resume", "--out", str(run), *flags)
    assert refused.code == 2, refused
    assert f"{key} cannot change within a run: it is {old}, received {new}" in refused.err
    assert "where: --resume" in refused.err
    assert "to do: leave it" in refused.err
    assert (len(refused.err.splitlines()), refused.out) == (3, "")
    assert everything(run) == before


def test_refused_through_a_changed_file_too(run: Path) -> None:
    before = everything(run)
    other = write_settings(run.parent / "other.yaml", {"model": {"embed_dim": 32}})
    refused = train(str(other), "--resume", "--out", str(run))
    assert refused.code == 2, refused
    assert "model.embed_dim cannot change within a run: it is 16, received 32" in refused.err
    assert everything(run) == before


def test_refused_after_the_end_as_well(tmp_path: Path) -> None:
    run = shutil.copytree(uninterrupted(), tmp_path / "run")
    before = everything(run)
    refused = train("--resume", "--out", str(run), "--seed", "1")
    assert refused.code == 2, refused
    assert everything(run) == before


def test_after_a_refusal_the_run_can_go_on(run: Path) -> None:
    assert train("--resume", "--out", str(run), "--optim.name", "sgd").code == 2
    done = train("--resume", "--out", str(run))
    assert done.code == 0, done
    assert "changed since" not in done.err
    assert differences(run, uninterrupted()) == []


def test_what_may_change_is_applied_and_said(run: Path) -> None:
    flags = ("--epochs", "3", "--loop.log-every", "7", "--checkpoint.every-steps", "3", "--optim.weight-decay", "0.1")
    done = train("--resume", "--out", str(run), *flags, "--data.loader", "worker", "--data.workers", "0")
    assert done.code == 0, done
    for change in (
        "loop.epochs: 2 -> 3",
        "loop.log_every: 10 -> 7",
        "checkpoint.every_steps: 4 -> 3",
        "optim.weight_decay: None -> 0.1",
        "data.loader: 'device' -> 'worker'",
        "data.workers: None -> 0",
    ):
        assert f"changed since the run began: {change}" in done.err
        assert change in (run / "train.log").read_text()
    assert done.err.count("changed since the run began") == 6
    assert [row["epoch"] for row in rows(run) if "val/loss" in row] == [1, 2, 3]
    assert [row["step"] for row in rows(run) if "train/loss" in row] == list(range(1, 3 * STEPS_PER_EPOCH + 1))
    settings = yaml.safe_load((run / "config.yaml").read_text())
    assert (settings["loop"]["epochs"], settings["loop"]["log_every"]) == (3, 7)
    lrs = [row["train/lr"] for row in rows(run) if "train/lr" in row]
    reference = [row["train/lr"] for row in rows(uninterrupted()) if "train/lr" in row]
    assert lrs[:STOPPED_AT] == reference[:STOPPED_AT]
    assert lrs[STOPPED_AT + 1] > reference[STOPPED_AT + 1]  # the cosine is longer from there on


def test_the_same_settings_are_no_change(run: Path) -> None:
    done = train(str(run.parent / "settings.yaml"), "--resume", "--out", str(run))
    assert done.code == 0, done
    assert "changed since" not in done.err
    assert differences(run, uninterrupted()) == []


def test_fewer_epochs_than_are_done_end_the_run_at_once(tmp_path: Path) -> None:
    make_stopped(tmp_path, STEPS_PER_EPOCH + 3)
    run = tmp_path / "run"
    done = train("--resume", "--out", str(run), "--epochs", "1", "--schedule.warmup", "1 steps")
    assert done.code == 0, done
    assert "loop.epochs: 2 -> 1" in done.err
    assert status(run)["state"] == "finished"
    assert max(row["step"] for row in rows(run)) == STEPS_PER_EPOCH + 3
    assert sum("test/loss" in row for row in rows(run)) == 1


def test_a_finished_run_stays_as_it_is(tmp_path: Path) -> None:
    run = shutil.copytree(uninterrupted(), tmp_path / "run")
    before = everything(run)
    done = train("--resume", "--out", str(run))
    assert done.code == 0, done
    assert "is finished: nothing to resume" in done.err
    assert everything(run) == before


def test_a_finished_run_goes_on_with_more_epochs_and_is_tested_anew(tmp_path: Path) -> None:
    run = shutil.copytree(uninterrupted(), tmp_path / "run")
    before = rows(run)
    done = train("--resume", "--out", str(run), "--epochs", "3")
    assert done.code == 0, done
    assert "changed since the run began: loop.epochs: 2 -> 3" in done.err
    after = rows(run)
    assert after[: len(before) - 1] == before[:-1]
    assert [row["epoch"] for row in after if "val/loss" in row] == [1, 2, 3]
    tests = [row for row in after if "test/loss" in row]
    assert [row["step"] for row in tests] == [3 * STEPS_PER_EPOCH]
    assert tests[0]["test/loss"] != before[-1]["test/loss"]
    assert status(run)["state"] == "finished"


def test_a_run_that_is_at_work_is_not_resumed_beside_it(tmp_path: Path) -> None:
    settings, run = write_settings(tmp_path / "settings.yaml", {"loop": {"epochs": 1000}}), tmp_path / "run"
    child = start_warm(str(settings), "--out", str(run))
    try:
        child.wait_for_step(run, 2)
        refused = train("--resume", "--out", str(run))
        assert refused.code == 2, refused
        assert f"process {child.pid} is writing to {run}" in refused.err
        assert not child.has_ended()
    finally:
        child.send(9)
        child.wait()
