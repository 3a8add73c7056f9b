"""Going back, and what must not be lost or mixed up: the model, the run that is there, what the disk refuses."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from train.tiny_runs import VIT, differing, network, state_of, tiny
from vitscope.core.config import updated
from vitscope.core.errors import DataError, DivergedError, UsageError, VitscopeError
from vitscope.core.run_folder import RunFolder
from vitscope.core.run_view import read_run
from vitscope.models.config import CNNConfig
from vitscope.train import finish, launch
from vitscope.train import fit as fit_module
from vitscope.train.checkpoints.store import CheckpointError, Checkpoints
from vitscope.train.config import CheckpointConfig, TrainConfig
from vitscope.train.fit import Run, fit
from vitscope.train.launch import Launcher
from vitscope.train.run_log import nothing_left_of_refusals
from vitscope.train.show.observer import Observer
from vitscope.train.signals import StopFlag
from vitscope.train.state import TrainState
from vitscope.weights.folder import save_model

pytestmark = pytest.mark.usefixtures("no_pictures")
Script = Callable[[list[float]], None]


def everything(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def model_of(run: Path) -> dict[str, Tensor]:
    return load_file(run / "model" / "model.safetensors")


def bad_once(monkeypatch: pytest.MonkeyPatch, update: int) -> None:
    """The step after so many updates is not finite, the first time it is taken."""
    spent: list[int] = []
    step = launch.train_step

    def poisoned(state: TrainState, images: Tensor, labels: Tensor, **given: Any) -> None:
        if int(state.updates) == update and not spent:
            spent.append(update)
            images = images * math.nan
        step(state, images, labels, **given)

    monkeypatch.setattr(launch, "train_step", poisoned)


class Models(Observer):
    """The model folder as it was at each best epoch."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self.seen: list[tuple[int, dict[str, Tensor]]] = []

    def epoch(self, row: dict[str, Any]) -> None:
        if row.get("best"):
            self.seen.append((row["epoch"], model_of(self.run)))


# --- the model -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("keep", "stands"), [(1, 2), (9, 1)])
def test_after_going_back_the_model_is_that_of_the_best_step_that_stands(
    keep: int, stands: int, tmp_path: Path, accuracies: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Epoch 2 was the best, but the step from it went wrong; taken again it is worse than epoch 1. Where the checkpoint
    of epoch 1 is not kept, there is no going behind epoch 2."""
    accuracies([0.5, 0.6, 0.4, 0.41])
    bad_once(monkeypatch, update=2)
    place = tmp_path / "run"
    models = Models(place)
    config = tiny(loop={"epochs": 3, "most_bad_steps": 1}, checkpoint=CheckpointConfig(keep=keep))
    run = fit(config, out=place, quiet=True, observers=[models])
    assert [epoch for epoch, _ in models.seen] == [1, 2]
    assert run.best is not None
    assert run.best["epoch"] == stands
    assert differing(model_of(place), models.seen[stands - 1][1]) == set()
    assert f"| validation | {(50, 60)[stands - 1]}.00 %" in (place / "model" / "README.md").read_text()
    best = Checkpoints(place / "checkpoints", keep=1).best()
    assert best is not None
    assert best.step == stands


def test_a_best_pointer_the_disk_does_not_take_costs_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    point = Checkpoints._point

    def full(store: Checkpoints, pointer: str, step: int) -> None:
        if pointer == "best" and step == 1:
            raise OSError(28, "No space left on device")
        point(store, pointer, step)

    monkeypatch.setattr(Checkpoints, "_point", full)
    run = fit(tiny(), out=tmp_path / "run", quiet=True)
    assert run.state == "finished"
    assert "checkpoint of step 1 not saved" in run.folder.log_path.read_text()


# --- the run that is there ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["removed", "damaged"])
def test_a_run_whose_checkpoints_are_lost_is_not_begun_again(how: str, tmp_path: Path) -> None:
    config, place = tiny(), tmp_path / "run"
    fit(config, out=place, quiet=True)
    for path in (place / "checkpoints").rglob("trainer.pt"):
        path.unlink() if how == "removed" else path.write_bytes(b"x" + path.read_bytes()[1:])
    before = everything(place)
    with pytest.raises(CheckpointError, match="no checkpoint that can be used") as refusal:
        fit(updated(config, loop=updated(config.loop, epochs=5)), out=place, quiet=True, resume=True)
    assert f"--from {place}" in str(refusal.value.fix)
    assert everything(place) == before


@pytest.mark.parametrize("wrong", [{"data": {"batch_size": 100_000}}, {"optim": {"freeze": ("nothing_like_it",)}}])
def test_settings_that_are_refused_replace_no_run(wrong: dict[str, Any], tmp_path: Path) -> None:
    fit(tiny(), out=tmp_path / "run", quiet=True)
    before = everything(tmp_path / "run")
    with pytest.raises(VitscopeError):
        fit(tiny(**wrong), out=tmp_path / "run", quiet=True, overwrite=True)
    assert everything(tmp_path / "run") == before


def test_a_run_is_replaced_by_one_that_begins(tmp_path: Path) -> None:
    fit(tiny(loop={"epochs": 3}), out=tmp_path / "run", quiet=True)
    run = fit(tiny(loop={"epochs": 1}), out=tmp_path / "run", quiet=True, overwrite=True)
    assert max(row["step"] for row in run.metrics) == 1
    assert not (tmp_path / "run" / ".replaced").exists()


@pytest.mark.parametrize("section", ["from", "teacher"])
def test_what_a_run_needs_is_not_replaced_by_it(section: str, tmp_path: Path) -> None:
    place = tmp_path / "run"
    fit(tiny(), out=place, quiet=True)
    before = everything(place)
    needs = (
        {"checkpoint": CheckpointConfig(init_from=str(place))}
        if section == "from"
        else {"loss": {"teacher": str(place / "model")}}
    )
    with pytest.raises(UsageError, match="is in what would be replaced"):
        fit(tiny(**needs), out=place, quiet=True, overwrite=True)
    assert everything(place) == before


def test_a_file_is_no_run_to_resume(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("x")
    with pytest.raises(UsageError, match="is not a folder"):
        fit(tiny(), out=tmp_path / "run", quiet=True, resume=True)


def test_killed_while_it_resumes_with_more_epochs_it_still_has_them_to_come(tmp_path: Path) -> None:
    config, place = tiny(), tmp_path / "run"
    fit(config, out=place, quiet=True)
    longer = updated(config, loop=updated(config.loop, epochs=4))
    child = os.fork()
    if child == 0:  # dies as by kill -9, between the settings and the checkpoint
        fit_module._watchers = lambda *_, **__: os._exit(9)
        fit(longer, out=place, quiet=True, resume=True)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    run = fit(longer, out=place, quiet=True, resume=True)
    assert max(row["epoch"] for row in run.metrics) == 4


def test_an_epoch_of_other_steps_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a picture cannot be read, and the loader that leaves it out counts batches otherwise."""
    config, place = tiny(data={"batch_size": 18}), tmp_path / "run"
    fit(config, out=place, quiet=True)
    before = everything(place)
    make = fit_module.set_up

    def fewer(*args: Any, **given: Any) -> Any:
        work = make(*args, **given)
        work.steps_per_epoch -= 1
        return work

    monkeypatch.setattr(fit_module, "set_up", fewer)
    with pytest.raises(DataError, match="an epoch had 4 steps when the run began and has 3 now"):
        fit(updated(config, loop=updated(config.loop, epochs=4)), out=place, quiet=True, resume=True)
    found = everything(place)
    assert {name for name in before if found[name] != before[name]} <= {"train.log"}


# --- after a divergence -----------------------------------------------------------------------------------------


def test_another_rate_may_be_gone_back_from_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tiny(loop={"epochs": 3, "most_bad_steps": 1}, optim={"lr": 1e-3})
    place = tmp_path / "run"
    bad_once(monkeypatch, update=2)
    stop = StopFlag()

    def enough(state: TrainState) -> None:
        if int(state.updates) == 2 and float(state.lr_factor) < 1:
            stop.raise_flag()

    run = fit(config, out=place, quiet=True, stop=stop, after_step=[enough])
    assert run.state == "stopped"
    assert course_of(run)["went_back"] == 1
    slower = updated(config, optim=updated(config.optim, lr=5e-4))
    bad_once(monkeypatch, update=2)
    run = fit(slower, out=place, quiet=True, resume=True)
    assert run.state == "finished"
    rates = {row["step"]: row["train/lr"] for row in run.metrics if "train/lr" in row}
    assert rates[3] == pytest.approx(2.5e-4), "gone back from once, from the rate that was asked for"


def course_of(run: Run) -> dict[str, Any]:
    newest = Checkpoints(run.folder.checkpoints, keep=1).newest()
    assert newest is not None
    return newest.trainer()["course"]


# --- what cannot be saved ----------------------------------------------------------------------------------------


class Unsavable:
    """A hook that remembers a set."""

    name = "unsavable"

    def __call__(self, state: TrainState) -> None:
        pass

    def state_dict(self) -> dict[str, Any]:
        return {"seen": {1, 2}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


def test_a_hook_that_cannot_be_saved_is_named_before_the_first_step(tmp_path: Path) -> None:
    with pytest.raises(VitscopeError, match="hooks/unsavable/seen: expected a tensor, number") as caught:
        fit(tiny(), out=tmp_path / "run", quiet=True, after_step=[Unsavable()])
    assert not isinstance(caught.value, CheckpointError)
    assert not [row for row in read_run(tmp_path / "run").rows if "train/loss" in row]


def test_a_full_disk_at_the_end_is_no_other_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from vitscope.core import status_file

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    class FillDisk(Observer):
        def epoch(self, row: dict[str, Any]) -> None:
            if "test/accuracy" in row:
                monkeypatch.setattr(status_file, "write_json", full)

    run = fit(tiny(), out=tmp_path / "run", quiet=True, observers=[FillDisk()])
    assert run.state == "finished"
    assert "status not written" in run.folder.log_path.read_text()


def test_a_log_the_disk_does_not_take_is_no_other_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "run"
    place.mkdir()
    (place / "train.log").symlink_to("/dev/full")
    (place / "status.json").write_text("{}")
    run = fit(tiny(), out=place, quiet=True, resume=True)
    assert run.state == "finished"
    assert "Logging error" not in capsys.readouterr().err


def test_running_means_are_not_those_before_a_resume() -> None:
    """A step that fails before it has kept them puts back what was kept last."""
    state = state_of(network(CNNConfig(img_size=8, in_chans=1, widths=(4,), num_classes=4)))
    name = next(name for name, _ in state.model.named_buffers() if name.endswith("running_mean"))
    state.model.get_buffer(name).fill_(5.0)
    state.keep_buffers()  # as a restore does
    failed: list[int] = []

    def full_once() -> None:
        if not failed:
            failed.append(1)
            raise torch.OutOfMemoryError("CUDA out of memory")

    steps = Launcher(state, None, None, launch="eager", batch_size=8, seed=0)  # type: ignore[arg-type]
    steps._attempt(full_once)
    assert state.model.get_buffer(name).eq(5.0).all()


def test_settings(tmp_path: Path) -> None:
    """A run's settings stand in its folder from the start, and after a resume those of now."""
    config: TrainConfig = tiny()
    fit(config, out=tmp_path / "run", quiet=True)
    fit(updated(config, loop=updated(config.loop, epochs=3)), out=tmp_path / "run", quiet=True, resume=True)
    found = read_run(tmp_path / "run").config
    assert found is not None
    assert found["loop"]["epochs"] == 3


def test_a_run_that_diverged_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[str] = []
    monkeypatch.setattr(finish, "_draw", lambda folder, name, call: drawn.append(name))
    config = tiny(optim={"name": "sgd", "lr": 1e6, "clip_norm": None}, loop={"epochs": 60, "most_bad_steps": 1})
    with pytest.raises(DivergedError):
        fit(config, out=tmp_path / "run", quiet=True)
    assert drawn == ["first_batches", "curves", "lr", "grad_norms"]


# --- a run that is only beginning -------------------------------------------------------------------------------------


def test_it_is_alive_while_its_pictures_are_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That may take longer than a heartbeat counts."""
    make, beating = fit_module.set_up, []

    def looking(*args: Any, **given: Any) -> Any:
        beating.append(any(thread.name == "vitscope-heartbeat" for thread in threading.enumerate()))
        return make(*args, **given)

    monkeypatch.setattr(fit_module, "set_up", looking)
    fit(tiny(), out=tmp_path / "run", quiet=True)
    assert beating == [True]
    assert not any(thread.name == "vitscope-heartbeat" for thread in threading.enumerate())


@pytest.mark.parametrize("who", ["weights", "teacher"])
def test_weights_are_refused_before_pictures_are_prepared_and_leave_nothing(
    who: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "bare.pth"
    torch.save({"patch_embed.proj.weight": torch.zeros(8, 3, 4, 4)}, place)
    save_model(network(updated(VIT, num_classes=7)), tmp_path / "seven")
    from_there = {"checkpoint": CheckpointConfig(init_from=str(place))}
    config = tiny(**(from_there if who == "weights" else {"loss": {"teacher": str(tmp_path / "seven")}}))
    monkeypatch.setattr("vitscope.train.basis.make_loader", lambda *_, **__: pytest.fail("pictures were prepared"))
    with pytest.raises(VitscopeError, match=r"the weights do not fit the config|a model of the 4 classes of the data"):
        fit(config, out=tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("trained", [False, True])
def test_only_a_run_that_has_come_nowhere_leaves_nothing(trained: bool, tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", name="x")
    run.log_path.write_text("x")
    if trained:
        run.metrics.append(step=1, epoch=0)
    before = everything(run.path)
    with pytest.raises(DataError), nothing_left_of_refusals(run):
        raise DataError("too many bad pictures")
    assert run.path.exists() is trained
    assert everything(run.path) == (before if trained else {})
