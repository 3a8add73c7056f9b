"""N2: a learning rate 10,000 times too large is noticed within 50 steps and named; what was good before stays good."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest
import torch

from faults.faulty_runs import require_finite_files, rows_of
from faults.train_process import STEPS_PER_EPOCH, Ended, everything, start_warm, status, train, write_settings
from vitscope.core.errors import EXIT_DIVERGED, EXIT_TERMINATED
from vitscope.core.run_view import read_run
from vitscope.train.checkpoints.store import Checkpoints
from vitscope.weights.load import load_model

USUAL = {"adamw": 1e-3, "sgd": 0.1, "muon": 1e-3}
MOST_STEPS = 50
EPOCHS = 4
"""More steps than those within which it must be noticed."""


def attempts(run: Path) -> list[list[int]]:
    """The steps taken, broken up wherever training went back."""
    found: list[list[int]] = [[]]
    for row in rows_of(run):
        if found[-1] and row["step"] <= found[-1][-1]:
            found.append([])
        found[-1].append(row["step"])
    return found


def contents(folder: Path) -> dict[str, bytes]:
    """Without times: resuming writes the model anew."""
    return {name: content for name, (_, content) in everything(folder).items()}


def require_diverged(ended: Ended, run: Path, lr: float) -> None:
    assert ended.code == EXIT_DIVERGED, ended
    assert "Traceback" not in ended.err
    *_, what, where, fix = ended.err.strip().splitlines()
    assert what.startswith(f"error: training diverged with a learning rate of {lr / 2:g}, for the second time: ")
    assert f"(it was {lr:g}): vitscope train --resume --out {run} --optim.lr {lr / 10:g};" in fix
    assert Path(where.removeprefix("where: ")).exists()
    assert f"with half the learning rate ({lr / 2:g} at most)" in ended.err
    assert status(run)["state"] == "diverged"
    assert require_finite_files(run) > 10


@pytest.mark.parametrize(
    ("name", "every_steps"),
    [
        *((name, None) for name in USUAL),
        ("adamw", 1),
        # Which checkpoint is kept does not depend on the optimiser.
        *(pytest.param(name, 1, marks=pytest.mark.slow) for name in USUAL if name != "adamw"),
    ],
)
def test_it_is_noticed_within_50_steps_and_a_lower_one_trains_on(
    name: str, every_steps: int | None, tmp_path: Path
) -> None:
    lr, run = USUAL[name] * 10_000, tmp_path / "run"
    more = {"loop": {"epochs": EPOCHS}, "checkpoint": {"every_steps": every_steps, "keep": 3}}
    yaml = write_settings(tmp_path / "settings.yaml", {"optim": {"name": name, "lr": lr}, **more})
    ended = train(str(yaml), "--out", str(run))
    require_diverged(ended, run, lr)
    tried = attempts(run)
    assert len(tried) == 2
    assert all(len(steps) <= MOST_STEPS for steps in tried)

    # What is kept is of before the explosion: the first step has lr 1e-6, so its weights are the first ones but for
    # that. The second one's update is the huge one; its own loss is still a good one.
    last, first = (Checkpoints(run / "checkpoints", keep=2).open(wish) for wish in ("last", "step-000000"))
    assert last.step == (0 if every_steps is None else 1)
    assert last == Checkpoints(run / "checkpoints", keep=2).newest()
    for key, value in first.model().items():
        torch.testing.assert_close(last.model()[key], value, rtol=0, atol=2e-6)
    assert last.trainer()["course"]["went_back"] == 0

    # Whoever does what the error says comes to a rate that learns; the first may still be too high.
    for _ in range(3):
        advised = re.search(r"--resume --out \S+ --optim.lr ([^\s;]+)", ended.err)
        assert advised is not None
        ended = train("--out", str(run), "--resume", "--optim.lr", advised[1])
        if ended.code == 0:
            break
        assert ended.code == EXIT_DIVERGED, ended
    assert ended.code == 0, ended
    assert status(run)["state"] == "finished"
    assert read_run(run).column("val/loss")[0] == [STEPS_PER_EPOCH * epoch for epoch in range(1, EPOCHS + 1)]
    assert max(row["train/loss"] for row in rows_of(run)[-STEPS_PER_EPOCH:]) < 4.0, "2.3 is chance"


def test_a_checkpoint_of_weights_that_exploded_is_not_gone_back_to(tmp_path: Path) -> None:
    """Saved after every step, the exploded weights are saved too, before the next step's loss shows what they are."""
    run, lr = tmp_path / "run", 1000.0
    more = {"loop": {"epochs": 8}, "checkpoint": {"every_steps": 1, "keep": 1}}
    yaml = write_settings(tmp_path / "settings.yaml", {"optim": {"name": "sgd", "lr": lr}, **more})
    ended = train(str(yaml), "--out", str(run))
    assert ended.code == EXIT_DIVERGED, ended
    # With one kept there is nothing before it. It is not removed: rather a bad one than none.
    assert [path.name for path in (run / "checkpoints").glob("step-*")] == ["step-000002"]
    assert "back to step 2, " in ended.err


def test_what_was_good_before_stays_good(tmp_path: Path) -> None:
    """Good epochs, then the run is stopped and continued with the huge rate."""
    run, lr = tmp_path / "run", 10.0
    yaml = write_settings(tmp_path / "settings.yaml", {"loop": {"epochs": 200}, "checkpoint": {"every_steps": None}})
    child = start_warm(str(yaml), "--out", str(run))
    child.wait_for_step(run, STEPS_PER_EPOCH + 2)
    child.send(signal.SIGTERM)
    assert child.wait().code == EXIT_TERMINATED
    store = Checkpoints(run / "checkpoints", keep=2)
    best, saved = store.best(), contents(run / "model")
    stopped = store.open("last").step
    assert best is not None
    ended = train(str(yaml), "--out", str(run), "--resume", "--lr", f"{lr:g}", "--schedule.warmup", "0 steps")
    require_diverged(ended, run, lr)
    first, second = attempts(run)
    assert first[-1] - stopped <= MOST_STEPS
    assert len(second) <= MOST_STEPS
    assert store.best() == store.open("best") == best
    assert contents(run / "model") == saved
    load_model(run / "model")
