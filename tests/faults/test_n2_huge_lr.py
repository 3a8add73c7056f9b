"""N2: a learning rate 10,000 times too large is noticed within 50 steps and named; what was good before stays good."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from faults.faulty_runs import require_finite_files, rows_of
from faults.train_process import STEPS_PER_EPOCH, Ended, everything, start_warm, status, train, write_settings
from vitscope.core.errors import EXIT_DIVERGED, EXIT_TERMINATED
from vitscope.train.checkpoints.store import Checkpoints
from vitscope.weights.folder import load_model

USUAL = {"adamw": 1e-3, "sgd": 0.1, "muon": 1e-3}
MOST_STEPS = 50


def attempts(run: Path) -> list[list[int]]:
    """The steps taken, broken up wherever training went back."""
    found: list[list[int]] = [[]]
    for row in rows_of(run):
        if found[-1] and row["step"] <= found[-1][-1]:
            found.append([])
        found[-1].append(row["step"])
    return found


def require_diverged(ended: Ended, run: Path, lr: float) -> None:
    assert ended.code == EXIT_DIVERGED, ended
    assert "Traceback" not in ended.err
    *_, what, where, fix = ended.err.strip().splitlines()
    assert what.startswith(f"error: training diverged with a learning rate of {lr / 2:g}, for the second time: ")
    assert f"--optim.lr (it is {lr:g}), e.g. to {lr / 10:g}" in fix
    assert Path(where.removeprefix("where: ")).exists()
    assert f"with half the learning rate ({lr / 2:g} at most)" in ended.err
    assert status(run)["state"] == "diverged"
    assert require_finite_files(run) > 10


@pytest.mark.parametrize("name", list(USUAL))
def test_it_is_noticed_within_50_steps(name: str, tmp_path: Path) -> None:
    lr, run = USUAL[name] * 10_000, tmp_path / "run"
    epochs = {"loop": {"epochs": 8}, "checkpoint": {"every_steps": None}}
    yaml = write_settings(tmp_path / "settings.yaml", {"optim": {"name": name, "lr": lr}, **epochs})
    require_diverged(train(str(yaml), "--out", str(run)), run, lr)
    tried = attempts(run)
    assert len(tried) == 2
    assert all(len(steps) <= MOST_STEPS for steps in tried)
    last = Checkpoints(run / "checkpoints", keep=2).open("last")
    assert last.model().keys() == Checkpoints(run / "checkpoints", keep=2).open("step-000000").model().keys()


def test_what_was_good_before_stays_good(tmp_path: Path) -> None:
    """Good epochs, then the run is stopped and continued with the huge rate."""
    run, lr = tmp_path / "run", 10.0
    yaml = write_settings(tmp_path / "settings.yaml", {"loop": {"epochs": 200}, "checkpoint": {"every_steps": None}})
    child = start_warm(str(yaml), "--out", str(run))
    child.wait_for_step(run, STEPS_PER_EPOCH + 2)
    child.send(signal.SIGTERM)
    assert child.wait().code == EXIT_TERMINATED
    store = Checkpoints(run / "checkpoints", keep=2)
    best, saved = store.best(), everything(run / "model")
    stopped = store.open("last").step
    assert best is not None
    ended = train(str(yaml), "--out", str(run), "--resume", "--lr", f"{lr:g}", "--schedule.warmup", "0 steps")
    require_diverged(ended, run, lr)
    first, second = attempts(run)
    assert first[-1] - stopped <= MOST_STEPS
    assert len(second) <= MOST_STEPS
    assert store.best() == store.open("best") == best
    assert everything(run / "model") == saved
    load_model(run / "model")
