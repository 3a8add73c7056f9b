"""The loop: what an evaluation leads to, when it ends, what is saved when, and that a stop costs nothing.

Evaluations are scripted, so that a curve of any form takes a step an epoch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from train.tiny_runs import DATA, VIT, differing, tiny
from vitscope.core.config import updated
from vitscope.core.errors import VitscopeError
from vitscope.data.config import AugmentConfig
from vitscope.train import finish, setup
from vitscope.train.config import CheckpointConfig
from vitscope.train.evaluate import Evaluation, evaluate
from vitscope.train.fit import Run, fit
from vitscope.train.show.observer import Observer
from vitscope.train.signals import StopFlag
from vitscope.train.state import TrainState

pytestmark = pytest.mark.usefixtures("no_pictures")
Script = Callable[[Sequence[float]], None]


def epochs_of(run: Run) -> list[dict[str, Any]]:
    return [row for row in run.metrics if "train/epoch_loss" in row]


def rates_of(run: Run) -> list[float]:
    return [row["train/lr"] for row in run.metrics if "train/lr" in row]


class Ears(Observer):
    def __init__(self) -> None:
        self.said: list[str] = []
        self.rows: list[dict[str, Any]] = []
        self.epochs: list[dict[str, Any]] = []
        self.closed = 0

    def say(self, text: str) -> None:
        self.said.append(text)

    def steps(self, rows: list[dict[str, Any]]) -> None:
        self.rows += rows

    def epoch(self, row: dict[str, Any]) -> None:
        self.epochs.append(row)

    def close(self) -> None:
        self.closed += 1


class AfterSteps:
    """A hook that raises the flag after so many steps of this process."""

    def __init__(self, stop: StopFlag, count: int) -> None:
        self.stop, self.count = stop, count

    def __call__(self, state: TrainState) -> None:
        self.count -= 1
        if self.count == 0:
            self.stop.raise_flag()


def stopped(config: Any, out: Path, count: int, **more: Any) -> Run:
    stop = StopFlag()
    return fit(config, out=out, quiet=True, stop=stop, after_step=[AfterSteps(stop, count)], **more)


def tensors_of(run: Run) -> dict[str, Any]:
    """Every tensor a checkpoint of the end holds."""
    last = (run.folder.checkpoints / "last").read_text().strip()
    trainer = torch.load(run.folder.checkpoints / last / "trainer.pt", weights_only=True)
    optimizer = {f"{n}/{key}": t for n, one in trainer["state"]["optimizer"].items() for key, t in one.items()}
    hooks = {f"{n}/{key}": t for n, one in trainer["hooks"].items() for key, t in one.items()}
    return {**load_file(run.folder.checkpoints / last / "model.safetensors"), **optimizer, **hooks}


def shown(run: Run) -> list[dict[str, Any]]:
    """The rows without what a clock says."""
    return [{key: row[key] for key in row if key not in ("time", "train/images_per_s")} for row in run.metrics]


# --- when it ends --------------------------------------------------------------------------------------------------


def test_a_flat_curve_ends_early(tmp_path: Path, accuracies: Script) -> None:
    accuracies([0.5] * 20)
    ears = Ears()
    run = fit(
        tiny(loop={"epochs": 20, "early_stop": True, "patience": 3}), out=tmp_path / "run", quiet=True, observers=[ears]
    )
    assert len(epochs_of(run)) == 4
    assert run.state == "finished"
    assert run.test is not None
    assert any("ending early: no better val/accuracy in 3 evaluations" in text for text in ears.said)


def test_an_early_end_goes_on_with_more_patience(tmp_path: Path, accuracies: Script) -> None:
    accuracies([0.5] * 20)
    config = tiny(loop={"epochs": 9, "early_stop": True, "patience": 2})
    assert len(epochs_of(fit(config, out=tmp_path / "run", quiet=True))) == 3
    again = fit(config, out=tmp_path / "run", quiet=True, resume=True)
    assert (again.state, len(epochs_of(again))) == ("finished", 3), "the same patience: nothing to resume"
    more = updated(config, loop=updated(config.loop, patience=5))
    run = fit(more, out=tmp_path / "run", quiet=True, resume=True)
    assert (run.state, len(epochs_of(run))) == ("finished", 6)
    assert len([row for row in run.metrics if "test/accuracy" in row]) == 1
    none = updated(config, loop=updated(config.loop, early_stop=False))
    assert len(epochs_of(fit(none, out=tmp_path / "run", quiet=True, resume=True))) == 9
    over = fit(more, out=tmp_path / "run", quiet=True, resume=True)
    assert (over.state, len(epochs_of(over))) == ("finished", 9)


def test_less_patience_ends_a_stopped_run_at_once(tmp_path: Path, accuracies: Script) -> None:
    accuracies([0.5] * 20)
    config = tiny(loop={"epochs": 9, "early_stop": True, "patience": 8})
    stopped(config, tmp_path / "run", 5)  # four of them evaluated, three without an improvement
    less = updated(config, loop=updated(config.loop, patience=3))
    run = fit(less, out=tmp_path / "run", quiet=True, resume=True)
    assert run.state == "finished"
    assert len([row for row in run.metrics if "train/loss" in row]) == 5


def test_the_best_are_marked_in_their_rows(tmp_path: Path, accuracies: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that the disk does not take is no best: the model folder has the one before."""
    accuracies([0.5, 0.4, 0.9, 0.7, 0.8])
    save, saves = setup.save_model, [0]

    def full(*given: Any, **more: Any) -> Any:
        saves[0] += 1
        if saves[0] == 2:
            raise OSError(28, "No space left on device")
        return save(*given, **more)

    monkeypatch.setattr(setup, "save_model", full)
    ears = Ears()
    run = fit(tiny(loop={"epochs": 5}), out=tmp_path / "run", quiet=True, observers=[ears])
    marks = [row.get("best") for row in epochs_of(run)]
    assert marks == [True, None, None, True, True]
    assert [row.get("best") for row in ears.epochs[:5]] == marks
    assert run.best == epochs_of(run)[4]
    assert (run.folder.checkpoints / "best").read_text().strip() == "step-000005"
    card = (run.model_folder / "README.md").read_text()
    assert "80.0" in card
    assert "90.0" not in card


def test_without_early_stop_it_goes_on_to_the_end(tmp_path: Path, accuracies: Script) -> None:
    accuracies([0.5] * 20)
    assert len(epochs_of(fit(tiny(loop={"epochs": 9, "patience": 2}), out=tmp_path / "run", quiet=True))) == 9


def test_best_is_saved_apart_from_delta(tmp_path: Path, accuracies: Script) -> None:
    """Ten small gains are no improvement by 0.1, but the last of them is the best model."""
    accuracies([0.50, 0.51, 0.52, 0.53, 0.5, 0.5, 0.5])
    seen: list[torch.Tensor] = []
    config = tiny(loop={"epochs": 20, "early_stop": True, "patience": 4, "min_delta": 0.1})
    run = fit(
        config,
        out=tmp_path / "run",
        quiet=True,
        after_step=[lambda state: seen.append(state.model.get_parameter("head.weight").clone())],
    )
    assert len(epochs_of(run)) == 5
    assert run.best is not None
    assert (run.best["val/accuracy"], run.best["step"]) == (0.53, 4)
    saved = load_file(run.model_folder / "model.safetensors")["head.weight"]
    assert torch.equal(saved, seen[3])
    assert not torch.equal(seen[3], seen[4])
    assert (run.folder.checkpoints / "best").read_text().strip() == "step-000004"


@pytest.mark.parametrize(
    ("loop", "values", "ends"),
    [
        ({"monitor": "val/loss"}, [0.5, 0.6, 0.7, 0.6, 0.6, 0.9], 5),  # accuracy up, loss down
        ({"monitor": "val/accuracy"}, [0.5, 0.6, 0.7, 0.6, 0.6, 0.9], 5),
        ({"monitor": "val/accuracy", "monitor_mode": "min"}, [0.5, 0.6, 0.7, 0.6, 0.6, 0.9], 3),
        ({"monitor": "train/epoch_loss", "monitor_mode": "max"}, [0.5] * 9, 3),  # which training lowers
        ({"monitor": "val/loss"}, [math.nan, 0.5, math.nan, math.nan, 0.9], 4),
    ],
)
def test_any_metric_can_be_watched(
    tmp_path: Path, accuracies: Script, loop: dict[str, Any], values: list[float], ends: int
) -> None:
    accuracies(values)
    config = tiny(loop={"epochs": 9, "early_stop": True, "patience": 2, **loop}, optim={"lr": 1e-2})
    run = fit(config, out=tmp_path / "run", quiet=True)
    assert len(epochs_of(run)) == ends
    assert run.best is not None
    by = [row[config.loop.monitor] for row in epochs_of(run) if math.isfinite(row[config.loop.monitor])]
    assert run.best[config.loop.monitor] == (max if config.loop.larger_is_better else min)(by)


def test_an_evaluation_that_is_not_finite_is_never_the_best(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network that gives no numbers may still hit a class: its accuracy is finite."""
    rest = iter([(1.0, 0.3), (math.nan, 0.9), (0.9, 0.4)])

    def scripted(*_: Any, batch: int, **__: Any) -> Evaluation:
        return Evaluation(*next(rest), None, 24, torch.zeros(4, 4, dtype=torch.int64), [], batch)

    monkeypatch.setattr(setup, "evaluate", scripted)
    run = fit(tiny(loop={"epochs": 3, "monitor": "val/accuracy"}), out=tmp_path / "run", quiet=True)
    assert [row.get("best", False) for row in epochs_of(run)] == [True, False, True]
    assert run.best is not None
    assert run.best["val/accuracy"] == 0.4


def test_a_metric_that_does_not_exist_is_refused_before_anything_is_trained() -> None:
    with pytest.raises(VitscopeError, match=r"monitor: expected one of 'val/accuracy', .* received 'val/f1'"):
        tiny(loop={"monitor": "val/f1"})


# --- a plateau -----------------------------------------------------------------------------------------------------

PLATEAU = {"name": "plateau", "plateau_patience": 1, "plateau_factor": 0.5, "min_lr": 1e-6}
CURVE = [0.5, 0.6, 0.6, 0.6, 0.5, 0.5, 0.7, 0.7]
"""Losses 0.5, 0.4, 0.4, 0.4: lowered after epoch 4, again after epoch 6."""
RATES = [3e-3] * 4 + [1.5e-3] * 2 + [7.5e-4] * 2


def test_a_plateau_lowers_the_rate_and_says_so(tmp_path: Path, accuracies: Script) -> None:
    accuracies(CURVE)
    ears = Ears()
    config = tiny(loop={"epochs": 8}, schedule=PLATEAU)
    run = fit(config, out=tmp_path / "run", quiet=True, observers=[ears])
    assert rates_of(run) == pytest.approx(RATES)
    assert [text for text in ears.said if "plateau" in text] == [
        "plateau: lr is multiplied by 0.5 after epoch 4",
        "plateau: lr is multiplied by 0.5 after epoch 6",
    ]


@pytest.mark.parametrize("count", [3, 5])
def test_a_plateau_survives_a_stop(tmp_path: Path, accuracies: Script, count: int) -> None:
    accuracies(CURVE)
    config = tiny(loop={"epochs": 8}, schedule=PLATEAU)
    first = stopped(config, tmp_path / "run", count)
    assert first.state == "stopped"
    accuracies(CURVE[count - 1 :])  # the epoch of the stop was not evaluated yet
    run = fit(config, out=tmp_path / "run", quiet=True, resume=True)
    assert run.state == "finished"
    assert rates_of(run) == pytest.approx(RATES)


def test_a_plateau_never_goes_below_its_least_rate(tmp_path: Path, accuracies: Script) -> None:
    accuracies([0.5] * 8)
    schedule = {**PLATEAU, "plateau_patience": 0, "min_lr": 1e-3}
    run = fit(tiny(loop={"epochs": 6}, schedule=schedule), out=tmp_path / "run", quiet=True)
    assert rates_of(run) == pytest.approx([3e-3, 3e-3, 1.5e-3, 1e-3, 1e-3, 1e-3])


def test_a_plateau_can_be_of_any_metric(tmp_path: Path, accuracies: Script) -> None:
    accuracies([0.5, 0.6, 0.7, 0.8])
    schedule = {**PLATEAU, "plateau_patience": 0, "plateau_metric": "val/accuracy", "plateau_mode": "min"}
    run = fit(tiny(loop={"epochs": 4}, schedule=schedule), out=tmp_path / "run", quiet=True)
    assert rates_of(run) == pytest.approx([3e-3, 3e-3, 1.5e-3, 7.5e-4])


def test_a_plateau_of_accuracy_wants_it_large(tmp_path: Path, accuracies: Script) -> None:
    accuracies([0.5, 0.6, 0.7, 0.7, 0.8])
    schedule = {**PLATEAU, "plateau_patience": 0, "plateau_metric": "val/accuracy"}
    run = fit(tiny(loop={"epochs": 5}, schedule=schedule), out=tmp_path / "run", quiet=True)
    assert rates_of(run) == pytest.approx([3e-3, 3e-3, 3e-3, 3e-3, 1.5e-3])


# --- how often -----------------------------------------------------------------------------------------------------


def test_evaluations_are_as_far_apart_as_asked_for(tmp_path: Path, accuracies: Script) -> None:
    accuracies([0.5, 0.6, 0.7])
    run = fit(tiny(loop={"epochs": 5, "eval_every": 2}), out=tmp_path / "run", quiet=True)
    rows = epochs_of(run)
    assert [row["epoch"] for row in rows] == [1, 2, 3, 4, 5]
    assert [row["epoch"] for row in rows if "val/accuracy" in row] == [2, 4, 5], "the last always"
    assert all("train/epoch_loss" in row for row in rows)


def test_patience_counts_evaluations_and_not_epochs(tmp_path: Path, accuracies: Script) -> None:
    accuracies([0.5] * 9)
    config = tiny(loop={"epochs": 20, "eval_every": 2, "early_stop": True, "patience": 2})
    assert len(epochs_of(fit(config, out=tmp_path / "run", quiet=True))) == 6


@pytest.mark.parametrize(
    ("checkpoint", "kept"),
    [
        ({"every_epochs": 1, "keep": 99}, [0, 4, 8, 12, 16, 20]),
        ({"every_epochs": 2, "keep": 99}, [0, 4, 8, 16, 20]),  # 4 is the best
        ({"every_epochs": 99, "keep": 99}, [0, 4, 20]),
        ({"every_epochs": 99, "every_steps": 3, "keep": 99}, [0, 3, 4, 6, 9, 12, 15, 18, 20]),
        ({"every_epochs": 1, "keep": 2}, [4, 16, 20]),
    ],
)
def test_checkpoints_are_as_far_apart_as_asked_for(
    tmp_path: Path, accuracies: Script, checkpoint: dict[str, Any], kept: list[int]
) -> None:
    accuracies([0.9, 0.5, 0.5, 0.5, 0.5])
    config = tiny(data={"batch_size": 18}, loop={"epochs": 5}, checkpoint=CheckpointConfig(**checkpoint))
    run = fit(config, out=tmp_path / "run", quiet=True)
    names = sorted(path.name for path in run.folder.checkpoints.glob("step-*"))
    assert names == [f"step-{step:06d}" for step in kept]
    assert (run.folder.checkpoints / "best").read_text().strip() == "step-000004"


def test_every_step_is_in_the_metrics_once_and_told_to_observers(tmp_path: Path) -> None:
    ears = Ears()
    run = fit(tiny(data={"batch_size": 18}), out=tmp_path / "run", quiet=True, observers=[ears])
    steps = [row for row in run.metrics if "train/loss" in row]
    assert [row["step"] for row in steps] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [row["epoch"] for row in steps] == [1, 1, 1, 1, 2, 2, 2, 2]
    assert ears.rows == [{key: row[key] for key in row if key != "time"} for row in steps]
    assert [sorted(row) for row in ears.epochs] == [sorted(set(row) - {"time"}) for row in [*epochs_of(run), run.test]]
    assert ears.closed == 1
    for row, own in zip(epochs_of(run), (steps[:4], steps[4:]), strict=True):
        assert row["train/epoch_loss"] == pytest.approx(sum(step["train/loss"] for step in own) / 4)
        assert row["train/epoch_accuracy"] == pytest.approx(sum(step["train/accuracy"] for step in own) / 4)
        assert row["train/images_per_s"] > 0


def test_an_observer_that_cannot_write_does_not_end_the_run(tmp_path: Path) -> None:
    class Full(Observer):
        def steps(self, rows: list[dict[str, Any]]) -> None:
            raise OSError(28, "No space left on device")

    ears = Ears()
    run = fit(tiny(), out=tmp_path / "run", quiet=True, observers=[Full(), ears])
    assert run.state == "finished"
    assert len(ears.rows) == 2
    assert "Full cannot go on" in run.folder.log_path.read_text()


# --- a stop costs nothing ------------------------------------------------------------------------------------------

EVERYTHING = tiny(
    updated(VIT, drop_rate=0.1, drop_path_rate=0.2),
    data={"name": DATA, "batch_size": 18},
    loop={"epochs": 3, "ema_decay": 0.9},
    augment=AugmentConfig(crop="padded", padding=1, mixup_alpha=0.8, cutmix_alpha=1.0, erase_prob=0.3),
    schedule={"name": "cosine", "warmup": "3 steps"},
)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Run:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finish, "_draw", lambda *_: None)
        return fit(EVERYTHING, out=tmp_path_factory.mktemp("runs") / "whole", quiet=True)


@pytest.mark.parametrize("count", [1, 4, 6, 12])
def test_stopped_anywhere_and_resumed_is_uninterrupted(tmp_path: Path, uninterrupted: Run, count: int) -> None:
    first = stopped(EVERYTHING, tmp_path / "run", count)
    assert (first.state, first.exit_code) == ("stopped", 143)
    assert (first.folder.read_status() or {})["state"] == "stopped"
    assert len([row for row in first.metrics if "train/loss" in row]) == count
    run = fit(EVERYTHING, out=tmp_path / "run", quiet=True, resume=True)
    assert run.state == "finished"
    assert differing(tensors_of(run), tensors_of(uninterrupted)) == set()
    assert shown(run) == shown(uninterrupted)


def test_stopped_in_an_evaluation_and_resumed_is_uninterrupted(
    tmp_path: Path, uninterrupted: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop, count = StopFlag(), [0]

    def interrupted(*args: Any, **more: Any) -> Any:
        count[0] += 1
        if count[0] == 2:
            stop.raise_flag()
        return evaluate(*args, **more)

    monkeypatch.setattr(setup, "evaluate", interrupted)
    first = fit(EVERYTHING, out=tmp_path / "run", quiet=True, stop=stop)
    assert first.state == "stopped"
    assert len(epochs_of(first)) == 1
    assert first.metrics[-1]["step"] == 8
    run = fit(EVERYTHING, out=tmp_path / "run", quiet=True, resume=True)
    assert differing(tensors_of(run), tensors_of(uninterrupted)) == set()
    assert shown(run) == shown(uninterrupted)


def test_every_step_draws_anew_and_by_its_own_address(tmp_path: Path) -> None:
    """Dropout must not repeat from step to step, nor depend on what was drawn before the run or after a stop."""

    def draw(state: TrainState) -> None:
        state.scalars["probe/draw"] = torch.rand(())

    config = tiny(data={"batch_size": 18})
    found = []
    for seed, count in ((1, 99), (2, 99), (3, 5)):
        torch.manual_seed(seed)
        stop = StopFlag()
        out = tmp_path / str(seed)
        run = fit(config, out=out, quiet=True, stop=stop, after_step=[draw, AfterSteps(stop, count)])
        if run.state == "stopped":
            torch.manual_seed(seed + 10)
            run = fit(config, out=out, quiet=True, resume=True, after_step=[draw])
        found.append([row["probe/draw"] for row in run.metrics if "probe/draw" in row])
    assert len(set(found[0])) == 8
    assert found[0] == found[1] == found[2]


def test_twice_the_same_and_with_another_seed_another(tmp_path: Path, uninterrupted: Run) -> None:
    again = fit(EVERYTHING, out=tmp_path / "again", quiet=True)
    files = [one.model_folder / "model.safetensors" for one in (uninterrupted, again)]
    assert files[0].read_bytes() == files[1].read_bytes()
    assert shown(again) == shown(uninterrupted)
    other = fit(updated(EVERYTHING, loop=updated(EVERYTHING.loop, seed=1)), out=tmp_path / "other", quiet=True)
    assert shown(other)[0]["train/loss"] != shown(again)[0]["train/loss"]
