"""An experiment that was stopped or killed anywhere, and gone on with, is one that nobody disturbed: rewind point,
masks, what optimisers remember, metrics and the weights of every round, bit for bit."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparse.tiny_experiments import (
    STEPS,
    STEPS_PER_EPOCH,
    KilledError,
    before,
    dense_run,
    differences,
    experiment,
    kill,
    settings,
    what_counts,
)
from vitscope.data.config import AugmentConfig
from vitscope.sparse.sparsify import Experiment
from vitscope.train.config import TrainConfig
from vitscope.train.signals import StopFlag

STEP = "vitscope.train.launch.train_step"
ROUND = "vitscope.sparse.rounds.rsst"


def noisy() -> TrainConfig:
    """Mixed pictures and a running mean: more to get wrong."""
    return settings(loop={"epochs": 2, "ema_decay": 0.9}, augment=AugmentConfig(mixup_alpha=0.4))


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> str:
    return dense_run(tmp_path_factory.mktemp("dense") / "run")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, dense: str) -> Path:
    return experiment(tmp_path_factory.mktemp("undisturbed") / "x", noisy(), source=dense).folder


def stopped(out: Path, place: str, call: int, config: TrainConfig, **given: Any) -> Experiment:
    """By SIGTERM, heard just before the `call`-th call of `place`."""
    stop = StopFlag()
    with before(place, call, lambda: stop.raise_flag(signal.SIGTERM)):
        done = experiment(out, config, stop=stop, **given)
    assert (done.state, done.exit_code) == ("stopped", 143)
    assert not (out / "report.html").exists()
    return done


def killed(out: Path, place: str, call: int, config: TrainConfig, **given: Any) -> None:
    with before(place, call, kill), pytest.raises(KilledError):
        experiment(out, config, **given)


@pytest.mark.parametrize(
    ("place", "call"),
    [
        pytest.param(STEP, 3, id="growing"),
        pytest.param(STEP, STEPS_PER_EPOCH, id="in the step of the pause"),
        pytest.param(f"{ROUND}.cut_run", 1, id="after the pause, before the cut"),
        pytest.param(f"{ROUND}.fit", 2, id="between the cut and the small run"),
        pytest.param(STEP, STEPS_PER_EPOCH + 2, id="in the small run"),
        pytest.param("vitscope.train.fit.finish", 1, id="before the test", marks=pytest.mark.slow),
    ],
)
def test_stopped_in_a_round(place: str, call: int, tmp_path: Path, dense: str, undisturbed: Path) -> None:
    stopped(tmp_path / "x", place, call, noisy(), source=dense)
    done = experiment(tmp_path / "x", noisy(), source=dense, resume=True)
    assert done.state == "finished"
    assert differences(done.folder, undisturbed) == []


@pytest.mark.parametrize(
    ("place", "call"),
    [
        pytest.param(
            "vitscope.sparse.trial.save_model", 1, id="before the dense network is copied", marks=pytest.mark.slow
        ),
        pytest.param(f"{ROUND}.fit", 1, id="before the growing run", marks=pytest.mark.slow),
        pytest.param(f"{ROUND}.cut_run", 1, id="after the pause, before the cut", marks=pytest.mark.slow),
        pytest.param("vitscope.sparse.cut._write_run", 1, id="figures written, no run", marks=pytest.mark.slow),
        pytest.param("vitscope.sparse.cut.slice_optimizer_state", 1, id="in the middle of the cut"),
        pytest.param(f"{ROUND}.fit", 2, id="between the cut and the small run", marks=pytest.mark.slow),
        pytest.param("vitscope.sparse.outcome._write", 2, id="before the outcome is kept"),
    ],
)
def test_killed_in_a_round(place: str, call: int, tmp_path: Path, dense: str, undisturbed: Path) -> None:
    killed(tmp_path / "x", place, call, noisy(), source=dense)
    done = experiment(tmp_path / "x", noisy(), source=dense, resume=True)
    assert differences(done.folder, undisturbed) == []


def test_stopped_again_and_again(tmp_path: Path) -> None:
    """Refill of two rounds, with a rewind point of epoch 1: in the dense run, in a small run, in a masked one, between
    rounds and in a control."""
    given: dict[str, Any] = {"algorithm": "refill", "rounds": 2, "rewind": 1, "controls": "random"}
    whole = experiment(tmp_path / "whole", noisy(), **given)
    out, resume = tmp_path / "x", False
    for place, call in (
        (STEP, 2),  # dense, before the rewind point
        (STEP, STEPS_PER_EPOCH),  # dense, after it
        (STEP, 5),  # the rest of dense is 4 steps: the first small network of round 1
        ("vitscope.sparse.sparsify.row_of", 2),  # between round 1 and its control
        ("vitscope.sparse.rounds.refill.ticket", 1),  # the masked network between rounds begins
        (STEP, 4),  # in it
        ("vitscope.sparse.sparsify.row_of", 4),
    ):
        stopped(out, place, call, noisy(), resume=resume, **given)
        resume = True
    done = experiment(out, noisy(), resume=True, **given)
    assert differences(done.folder, whole.folder) == []
    compared = what_counts(out).keys()
    assert "seed-0/rewind.safetensors: pos_embed" in compared
    assert "seed-0/round-1/imp/masks.safetensors: blocks.0.attn.qkv.weight" in compared


def test_a_masked_run_and_the_rounds_after_it(tmp_path: Path) -> None:
    given: dict[str, Any] = {"algorithm": "imp", "rounds": 2}
    whole = experiment(tmp_path / "whole", noisy(), **given)
    stopped(tmp_path / "x", STEP, STEPS + 4, noisy(), **given)
    killed(tmp_path / "x", "vitscope.sparse.outcome._write", 1, noisy(), resume=True, **given)
    killed(tmp_path / "x", "vitscope.sparse.rounds.imp.next_masks", 2, noisy(), resume=True, **given)
    done = experiment(tmp_path / "x", noisy(), resume=True, **given)
    assert differences(done.folder, whole.folder) == []


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["rsst", "refill"])
def test_more_rounds_are_those_of_one_experiment(algorithm: str, tmp_path: Path, dense: str) -> None:
    whole = experiment(tmp_path / "whole", source=dense, algorithm=algorithm, rounds=2)
    experiment(tmp_path / "x", source=dense, algorithm=algorithm)
    done = experiment(tmp_path / "x", source=dense, algorithm=algorithm, rounds=2, resume=True)
    assert differences(done.folder, whole.folder) == []
    assert [(row.round, row.network) for row in done.rows] == [(row.round, row.network) for row in whole.rows]


def test_what_is_finished_is_not_done_again(tmp_path: Path, dense: str, undisturbed: Path) -> None:
    kept = {path: path.stat().st_mtime_ns for path in undisturbed.rglob("*.safetensors")}
    done = experiment(undisturbed, noisy(), source=dense, resume=True)
    assert done.state == "finished"
    assert {path: path.stat().st_mtime_ns for path in undisturbed.rglob("*.safetensors")} == kept


def test_a_comparison_can_fail(tmp_path: Path, dense: str, undisturbed: Path) -> None:
    other = experiment(tmp_path / "x", settings(loop={"epochs": 2, "ema_decay": 0.9}), source=dense)
    assert any("model.safetensors" in name for name in differences(other.folder, undisturbed))


def test_seeds_that_were_run_apart_are_one_experiment_when_put_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As docs/sparse.md has it: nothing is trained again, and the table is that of one experiment."""
    asked: dict[str, Any] = {"algorithm": "oneshot", "controls": "random"}
    whole = experiment(tmp_path / "whole", seeds=2, **asked)
    for seed in (0, 1):
        experiment(tmp_path / f"apart-{seed}", settings(loop={"epochs": 2, "seed": seed}), **asked)
    (tmp_path / "apart-1" / "seed-1").rename(tmp_path / "apart-0" / "seed-1")
    monkeypatch.setattr("vitscope.train.launch.train_step", kill)
    done = experiment(tmp_path / "apart-0", seeds=2, resume=True, **asked)
    assert differences(whole.folder, done.folder) == []
    timeless = [[replace(row, seconds=0.0) for row in one.rows] for one in (whole, done)]
    assert timeless[0] == timeless[1]
