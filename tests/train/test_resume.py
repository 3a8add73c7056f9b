"""Going on with a run: which model stands then, what is said, and that a refusal leaves everything as it was."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor

from train.tiny_runs import differing, network, tiny
from vitscope.core.config import updated
from vitscope.core.errors import EXIT_FAILED, ConfigError, DataError, UsageError, VitscopeError
from vitscope.core.run_folder import RunFolder
from vitscope.train.checkpoints.store import CheckpointError, Checkpoints
from vitscope.train.config import CheckpointConfig, TrainConfig
from vitscope.train.fit import Run, fit
from vitscope.train.show.observer import Observer
from vitscope.train.signals import StopFlag
from vitscope.train.state import TrainState
from vitscope.weights.folder import save_model

pytestmark = pytest.mark.usefixtures("no_pictures")
Script = Callable[[list[float]], None]


class Ears(Observer):
    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


def stopped(config: TrainConfig, out: Path, step: int, **more: Any) -> Run:
    """A run that is asked to stop in its `step`-th update."""
    stop = StopFlag()

    def enough(state: TrainState) -> None:
        if int(state.updates) == step:
            stop.raise_flag()

    hooks = [*more.pop("after_step", ()), enough]
    run = fit(config, out=out, quiet=True, after_step=hooks, stop=stop, **more)
    assert run.state == "stopped"
    return run


def model_of(run: Path) -> dict[str, Tensor]:
    return load_file(run / "model" / "model.safetensors")


def trainer_of(run: Path, step: int) -> dict[str, Any]:
    return torch.load(run / "checkpoints" / f"step-{step:06d}" / "trainer.pt", weights_only=True)


def everything(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file with its time of change and its content."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def log_of(run: Run) -> str:
    return run.folder.log_path.read_text()


def test_fewer_epochs_than_are_done_are_said(tmp_path: Path) -> None:
    config = tiny(loop={"epochs": 6})
    stopped(config, tmp_path / "run", 4)
    run = fit(updated(config, loop=updated(config.loop, epochs=2)), out=tmp_path / "run", quiet=True, resume=True)
    assert run.state == "finished"
    assert "3 epochs are done and 2 are asked for: nothing is left to train" in log_of(run)
    assert max(row["step"] for row in run.metrics if "train/loss" in row) == 4


# --- the model that stands ------------------------------------------------------------------------------------------

KEPT = tiny(loop={"epochs": 4, "ema_decay": 0.5}, checkpoint=CheckpointConfig(keep=9))


class Looked:
    """A hook that looks at the model folder in the first step of this process."""

    def __init__(self, run: Path) -> None:
        self.run, self.found = run, []

    def __call__(self, state: TrainState) -> None:
        if not self.found:
            self.found.append(model_of(self.run) if (self.run / "model").exists() else None)


def test_from_an_earlier_step_the_model_is_of_the_best_that_still_stands(tmp_path: Path, accuracies: Script) -> None:
    """The best was step 3; it is given up, and what comes instead is worse than step 1."""
    accuracies([0.5, 0.4, 0.9, 0.6])
    out = tmp_path / "run"
    fit(KEPT, out=out, quiet=True)
    assert (out / "checkpoints" / "best").read_text() == "step-000003\n"
    accuracies([0.1, 0.2])
    looked, ears = Looked(out), Ears()
    other = updated(KEPT, optim=updated(KEPT.optim, lr=1e-1))
    run = fit(other, out=out, quiet=True, resume_from="step-000002", after_step=[looked], observers=[ears])
    ema = trainer_of(out, 1)["hooks"]["ema"]
    assert differing(looked.found[0], ema) == set(), "at once, not only after an evaluation"
    assert differing(model_of(out), ema) == set()
    assert run.best is not None
    assert (run.best["step"], run.best["val/accuracy"]) == (1, 0.5)
    assert (out / "checkpoints" / "best").read_text() == "step-000001\n"
    assert "the checkpoints after it are given up: step-000003, step-000004" in log_of(run)
    assert [row["step"] for row in run.metrics if "train/loss" in row] == [1, 2, 3, 4]


def test_rebuilding_the_model_leaves_no_trace_in_training(tmp_path: Path, accuracies: Script) -> None:
    """The same way twice: once with the model of an earlier step rebuilt on the way, once never interrupted."""
    accuracies([0.5, 0.4, 0.3, 0.2] * 2)
    fit(KEPT, out=tmp_path / "whole", quiet=True)
    fit(KEPT, out=tmp_path / "run", quiet=True)
    accuracies([0.3, 0.2])
    fit(KEPT, out=tmp_path / "run", quiet=True, resume_from="step-000002")
    ends = [load_file(tmp_path / name / "checkpoints/step-000004/model.safetensors") for name in ("whole", "run")]
    assert differing(*ends) == set()
    first, second = (trainer_of(tmp_path / name, 4) for name in ("whole", "run"))
    assert differing(first["hooks"]["ema"], second["hooks"]["ema"]) == set()
    for trainer in (first, second):
        trainer["course"].pop("train_seconds")
    assert first["course"] == second["course"]


def test_where_no_best_stands_any_more_the_model_goes(tmp_path: Path, accuracies: Script) -> None:
    accuracies([0.9, 0.5, 0.5, 0.5])
    out, looked = tmp_path / "run", Looked(tmp_path / "run")
    fit(KEPT, out=out, quiet=True)
    accuracies([0.1, 0.2, 0.1, 0.1])
    run = fit(KEPT, out=out, quiet=True, resume_from="step-000000", after_step=[looked])
    assert looked.found == [None]
    assert run.best is not None
    assert (run.best["step"], run.best["val/accuracy"]) == (2, 0.2)
    assert differing(model_of(out), trainer_of(out, 2)["hooks"]["ema"]) == set()


def test_a_best_whose_checkpoint_is_pruned_is_no_best_any_more(tmp_path: Path, accuracies: Script) -> None:
    accuracies([0.5, 0.4, 0.4, 0.9])
    config = updated(KEPT, checkpoint=CheckpointConfig(keep=2))
    out, looked = tmp_path / "run", Looked(tmp_path / "run")
    fit(config, out=out, quiet=True)
    assert not (out / "checkpoints" / "step-000001").exists()
    accuracies([0.1])
    run = fit(config, out=out, quiet=True, resume_from="step-000003", after_step=[looked])
    assert looked.found == [None], "what is in the folder is of step 4, which is given up"
    assert run.best is not None
    assert (run.best["step"], run.best["val/accuracy"]) == (4, 0.1)
    assert differing(model_of(out), trainer_of(out, 4)["hooks"]["ema"]) == set()


def test_settings_of_now_survive_the_rebuilding(tmp_path: Path, accuracies: Script) -> None:
    """The best is another step than the one resumed from, so everything is loaded more than once."""
    accuracies([0.9] + [0.5] * 9)
    config = tiny(data={"batch_size": 36}, loop={"epochs": 9}, checkpoint=CheckpointConfig(keep=9))
    stopped(config, tmp_path / "run", 7)
    micro = updated(config, loop=updated(config.loop, micro_batch=9, epochs=2))
    run = fit(micro, out=tmp_path / "run", quiet=True, resume=True)
    assert run.state == "finished"
    assert len([row for row in run.metrics if "train/loss" in row]) == 7, "three epochs were done already"
    longer = updated(micro, loop=updated(micro.loop, epochs=5))
    fit(longer, out=tmp_path / "run", quiet=True, resume=True)
    assert trainer_of(tmp_path / "run", 10)["state"]["micro_batch"] == 9


# --- the rate -------------------------------------------------------------------------------------------------------

PLATEAU = {"name": "plateau", "plateau_patience": 0, "plateau_factor": 0.5, "min_lr": 1e-6}


def rates_of(run: Run) -> list[float]:
    return [row["train/lr"] for row in run.metrics if "train/lr" in row]


def test_what_plateaus_of_another_schedule_did_is_void(tmp_path: Path, accuracies: Script) -> None:
    accuracies([0.5, 0.5, 0.5, 0.5])
    config = tiny(loop={"epochs": 6}, schedule=PLATEAU)
    assert rates_of(stopped(config, tmp_path / "run", 4)) == pytest.approx([3e-3, 3e-3, 1.5e-3, 7.5e-4])
    ears = Ears()
    accuracies([0.4, 0.6, 0.5, 0.5])
    other = updated(config, schedule=updated(config.schedule, plateau_metric="val/accuracy"))
    run = fit(other, out=tmp_path / "run", quiet=True, resume=True, observers=[ears])
    # The first value under the new metric is the first there is: a loss of 0.5 is no accuracy to be compared with.
    assert rates_of(run)[4:] == pytest.approx([3e-3, 3e-3])
    assert "the schedule is laid out anew: lr was 0.00075 before, and is 0.003 now" in log_of(run)
    assert "lr is multiplied by" not in log_of(run).partition("laid out anew")[2].partition("plateau:")[0]


def test_a_change_is_not_forgotten_by_a_kill_before_the_next_checkpoint(tmp_path: Path, accuracies: Script) -> None:
    """The settings are written down at once, so the second time they are no change."""
    accuracies([0.5] * 20)
    config = tiny(loop={"epochs": 6}, schedule=PLATEAU)
    stopped(config, tmp_path / "run", 4)
    other = updated(config, schedule=updated(config.schedule, plateau_patience=9))

    def killed(state: TrainState) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(other, out=tmp_path / "run", quiet=True, resume=True, after_step=[killed])
    run = fit(other, out=tmp_path / "run", quiet=True, resume=True)
    assert rates_of(run)[4:] == pytest.approx([3e-3, 3e-3])


def test_a_plateaus_factor_is_said_on_resume(tmp_path: Path, accuracies: Script) -> None:
    accuracies([0.5] * 3)
    config = tiny(loop={"epochs": 6}, schedule=PLATEAU)
    stopped(config, tmp_path / "run", 4)
    accuracies([0.6, 0.7, 0.8])
    run = fit(config, out=tmp_path / "run", quiet=True, resume=True)
    assert "lr is multiplied by 0.25, for plateaus and for going back" in log_of(run)
    assert "laid out anew" not in log_of(run)
    assert rates_of(run)[4:] == pytest.approx([7.5e-4, 7.5e-4])


@pytest.mark.parametrize(
    ("section", "settings", "told"),
    [
        ("optim", {"lr": 1e-3}, "lr was 0.003 before, and is 0.001 now"),
        ("schedule", {"name": "cosine"}, "lr was 0.003 before, and is 0.0015 now"),
        ("loop", {"epochs": 8}, "lr was 0.003 before, and is 0.003 now"),
        ("loop", {"log_every": 3}, None),
    ],
)
def test_a_schedule_laid_out_anew_is_said(
    tmp_path: Path, section: str, settings: dict[str, Any], told: str | None
) -> None:
    config = tiny(loop={"epochs": 5})
    stopped(config, tmp_path / "run", 2)
    other = updated(config, **{section: updated(getattr(config, section), **settings)})
    run = fit(other, out=tmp_path / "run", quiet=True, resume=True)
    assert ("the schedule is laid out anew" in log_of(run)) == (told is not None)
    if told is not None:
        assert f"the schedule is laid out anew: {told}" in log_of(run)
        now = float(told.split()[-2])
        assert rates_of(run)[2] == pytest.approx(now, rel=0.01), "and so it is"


# --- a stop that could not save -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("saves", "newest"), [(1, 0), (0, None)])
def test_a_stop_whose_save_failed_says_what_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, saves: int, newest: int | None
) -> None:
    config = tiny(data={"batch_size": 18})
    whole = fit(config, out=tmp_path / "whole", quiet=True)
    save, left = Checkpoints.save, [saves]

    def full(store: Checkpoints, *given: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise CheckpointError("the disk is full")
        return save(store, *given)

    with monkeypatch.context() as patched:
        patched.setattr(Checkpoints, "save", full)
        run = stopped(config, tmp_path / "run", 3)
    assert run.exit_code == EXIT_FAILED
    assert (run.folder.read_status() or {})["state"] == "stopped"
    if newest is not None:
        assert (run.folder.read_status() or {})["step"] == newest
    said = "no checkpoint" if newest is None else f"the newest checkpoint is of step {newest}"
    assert f"stopped by SIGTERM after step 3; {said}" in log_of(run)
    assert "everything is saved" not in log_of(run)
    again = fit(config, out=tmp_path / "run", quiet=True, resume=True)
    assert differing(model_of(tmp_path / "run"), model_of(tmp_path / "whole")) == set()
    assert [row["step"] for row in again.metrics] == [row["step"] for row in whole.metrics]


# --- refusals -------------------------------------------------------------------------------------------------------


def pictures(folder: Path) -> str:
    rng = np.random.default_rng(0)
    for label in ("a", "b"):
        (folder / label).mkdir(parents=True)
        for number in range(20):
            Image.fromarray(rng.integers(0, 255, (8, 8), dtype=np.uint8)).save(folder / label / f"{number:02d}.png")
    return str(folder)


def sgd(folder: Path, momentum: float = 0.9) -> TrainConfig:
    data = {"name": str(folder / "pictures"), "batch_size": 8, "cache": False}
    optim = {"name": "sgd", "lr": 0.1, "momentum": momentum, "nesterov": False}
    return tiny(data=data, optim=optim, loop={"epochs": 3}, checkpoint=CheckpointConfig(keep=9))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with pictures, a run stopped on them, and another run beside it."""
    pictures(tmp_path / "pictures")
    stopped(sgd(tmp_path), tmp_path / "run", 4)
    shutil.copytree(tmp_path / "run", tmp_path / "other")
    return tmp_path


def damage(checkpoint: Path) -> None:
    path = checkpoint / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-9] ^= 1
    path.write_bytes(content)


REFUSED: dict[str, tuple[type[VitscopeError], str, dict[str, Any]]] = {
    "missing": (CheckpointError, "there is no checkpoint 'step-000099'", {"resume_from": "step-000099"}),
    "damaged": (CheckpointError, "sha256", {"resume_from": "step-000000"}),
    "of another run": (UsageError, "is a checkpoint of another run", {}),
    "other pictures": (DataError, "not those the run began with", {"resume": True}),
    "other pictures, the newest damaged": (DataError, "not those the run began with", {"resume": True}),
    "momentum ends": (ConfigError, r"optim\.momentum cannot begin or end", {"resume": True}),
    "another seed": (ConfigError, r"loop\.seed cannot change", {"resume": True}),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refusal_leaves_every_byte(case: str, place: Path, caplog: pytest.LogCaptureFixture) -> None:
    kind, text, given = REFUSED[case]
    how: dict[str, Any] = dict(given)
    config, run = sgd(place), place / "run"
    if case == "damaged":
        damage(run / "checkpoints" / "step-000000")
    if case == "of another run":
        how = {"resume_from": place / "other" / "checkpoints" / "last"}
    if case.startswith("other pictures"):
        (place / "pictures" / "a" / "03.png").unlink()
    if case.endswith("the newest damaged"):
        damage(run / "checkpoints" / "step-000004")
    if case == "momentum ends":
        config = sgd(place, momentum=0.0)
    if case == "another seed":
        config = updated(config, loop=updated(config.loop, seed=1))
    before = everything(place)
    with pytest.raises(kind, match=text) as caught:
        fit(config, out=run, quiet=True, **how)
    assert caught.value.fix
    assert everything(place) == before
    assert (RunFolder.open(run).read_status() or {})["state"] == "stopped"
    assert logging.getLogger("vitscope").handlers == []
    assert logging.getLogger("vitscope").propagate


def test_momentum_cannot_begin_either(tmp_path: Path) -> None:
    pictures(tmp_path / "pictures")
    stopped(sgd(tmp_path, momentum=0.0), tmp_path / "run", 4)
    before = everything(tmp_path)
    with pytest.raises(ConfigError, match=r"optim\.momentum cannot begin or end .* it is 0\.0, received 0\.9"):
        fit(sgd(tmp_path), out=tmp_path / "run", quiet=True, resume=True)
    assert everything(tmp_path) == before
    assert fit(sgd(tmp_path, momentum=0.0), out=tmp_path / "run", quiet=True, resume=True).state == "finished"


def test_a_damaged_one_that_is_passed_over_stands_in_the_log(place: Path) -> None:
    damage(place / "run" / "checkpoints" / "step-000004")
    ears = Ears()
    run = fit(sgd(place), out=place / "run", resume=True, quiet=True, observers=[ears])
    assert log_of(run).count("WARNING the checkpoint step-000004 is passed over") == 1


# --- what a run began with ------------------------------------------------------------------------------------------


def test_a_run_from_weights_goes_on_when_they_are_gone(tmp_path: Path) -> None:
    save_model(network(), tmp_path / "source")
    config = tiny(data={"batch_size": 18}, checkpoint=CheckpointConfig(init_from=str(tmp_path / "source")))
    fit(config, out=tmp_path / "whole", quiet=True)
    stopped(config, tmp_path / "run", 3)
    shutil.rmtree(tmp_path / "source")
    run = fit(config, out=tmp_path / "run", quiet=True, resume=True)
    assert run.state == "finished"
    assert differing(model_of(tmp_path / "run"), model_of(tmp_path / "whole")) == set()


class Counter:
    """A hook with a state."""

    name = "counter"

    def __init__(self) -> None:
        self.count = torch.zeros(())

    def __call__(self, state: TrainState) -> None:
        self.count += 1

    def state_dict(self) -> dict[str, Tensor]:
        return {"count": self.count}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.count.copy_(state["count"])


def test_a_hook_that_is_gone_is_missed_once(tmp_path: Path) -> None:
    config = tiny(data={"batch_size": 18}, loop={"epochs": 3, "ema_decay": 0.5})
    stopped(config, tmp_path / "run", 10, after_step=[Counter()])  # past the best: everything is loaded three times
    ears = Ears()
    run = fit(config, out=tmp_path / "run", resume=True, quiet=True, observers=[ears])
    assert log_of(run).count("WARNING what the hooks counter remembered is not used any more") == 1
    stopped(config, tmp_path / "kept", 10, after_step=[Counter()])
    kept = fit(config, out=tmp_path / "kept", resume=True, quiet=True, after_step=[Counter()])
    assert "is not used any more" not in log_of(kept)
    assert float(trainer_of(tmp_path / "kept", 12)["hooks"]["counter"]["count"]) == 12


# --- another metric ---------------------------------------------------------------------------------------------


def test_the_best_so_far_is_held_against_others_by_the_metric_of_now(tmp_path: Path, accuracies: Script) -> None:
    """Losses are 1 - accuracy: 0.75 at the best step until now, which only the last evaluation falls below."""
    accuracies([0.25, 0.2, 0.22, 0.4])
    config = tiny(loop={"epochs": 2}, checkpoint=CheckpointConfig(keep=9))
    fit(config, out=tmp_path / "run", quiet=True)
    longer = updated(config, loop=updated(config.loop, epochs=4, monitor="val/loss"))
    run = fit(longer, out=tmp_path / "run", quiet=True, resume=True)
    assert "best is measured by val/loss now: 0.75 so far" in log_of(run)
    assert [row["epoch"] for row in run.metrics if row.get("best")] == [1, 4]
    assert trainer_of(tmp_path / "run", 4)["course"]["best"] == pytest.approx(0.6)


# --- what was typed -----------------------------------------------------------------------------------------------


def test_the_card_names_every_start(tmp_path: Path) -> None:
    config = tiny(loop={"epochs": 3})
    stopped(config, tmp_path / "run", 1, command="vitscope train first.yaml")
    fit(config, out=tmp_path / "run", quiet=True, resume=True, command="vitscope train --resume --out RUN")
    card = (tmp_path / "run" / "model" / "README.md").read_text()
    assert "vitscope train first.yaml\nvitscope train --resume --out RUN\n" in card
