"""N1: a step that is not finite changes nothing, is counted and kept; three in a row go back once, then end the run."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from faults.faulty_runs import (
    BATCHES,
    CNN,
    VIT,
    Faults,
    differing,
    final,
    infinite_gradients,
    nan_in_part,
    nan_loss,
    no_pictures,
    once,
    require_finite_files,
    rows_of,
    settings,
    states_noted,
    stored,
    tensors_of,
)
from faults.train_process import train, write_settings
from vitscope.core.errors import EXIT_DIVERGED, DivergedError, VitscopeError
from vitscope.models.vit import ViT
from vitscope.train.fit import fit
from vitscope.train.replay import replay_bad_step
from vitscope.train.state import TrainState


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Faults:
    return Faults(monkeypatch)


@pytest.fixture(autouse=True)
def quick() -> Any:
    with no_pictures():
        yield


SINGLE = {(0, 1): nan_loss, (1, 0): infinite_gradients, (1, 2): nan_in_part(2)}
SKIPPED = [2, 5, 7]
"""The steps these are: batch 1 of the first epoch is step 2."""


@pytest.mark.parametrize(
    ("model", "optim"), [(VIT, "adamw"), (CNN, "sgd"), (VIT, "muon")], ids=["vit adamw", "cnn sgd", "vit muon"]
)
def test_single_bad_steps_change_nothing_and_the_run_goes_on(
    model: dict[str, Any], optim: str, faults: Faults, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    faults.at |= SINGLE
    lr = {"sgd": 0.05}.get(optim, 1e-3)
    cfg = settings(model, optim={"name": optim, "lr": lr}, loop={"micro_batch": 80, "ema_decay": 0.9})
    with states_noted() as noted:
        run = fit(cfg, out=tmp_path / "run")
    assert run.state == "finished"
    kept = sorted(path.name for path in (tmp_path / "run" / "checkpoints").glob("step-*"))
    # None of a step that went wrong; the one after it is saved again.
    assert kept == [f"step-{step:06d}" for step in range(2 * BATCHES + 1) if step not in SKIPPED]

    states = {step: tensors_of(stored(tmp_path / "run", step)) for step in (0, 1, 3, 4, 6, 8)}
    for step in (1, 3, 4, 6, 8):  # what is noted is what a checkpoint holds
        assert differing(states[step], noted[step]) == []
    states |= {step: noted[step] for step in SKIPPED}
    if model is CNN:
        assert any("running_mean" in name for name in states[0])
    assert any(name.startswith("/hooks/ema/") for name in states[0])
    for step in range(1, 2 * BATCHES + 1):
        changed = differing(states[step - 1], states[step])
        if step in SKIPPED:
            assert changed == []
        else:
            assert {"/model", "/hooks", "/state"} == {"/" + name.split("/")[1] for name in changed}
            assert "/state/updates" in changed

    rows = {row["step"]: row for row in rows_of(tmp_path / "run")}
    assert [step for step, row in rows.items() if row["train/skipped"]] == SKIPPED
    assert (rows[2]["train/loss"], rows[2]["train/grad_norm"]) == ("NaN", "NaN")
    assert math.isfinite(rows[5]["train/loss"])
    assert rows[5]["train/grad_norm"] in ("NaN", "Infinity")
    assert rows[7]["train/loss"] == "NaN"
    assert int(states[8]["/state/updates"]) == 5
    course = stored(tmp_path / "run", 8).trainer()["course"]
    assert (course["skipped_steps"], course["went_back"], course["bad_in_a_row"]) == (3, 0, 0)
    epochs = rows_of(tmp_path / "run", "train/epoch_loss")
    assert all(math.isfinite(row["train/epoch_loss"]) for row in epochs)

    said = capfd.readouterr().err
    for step in SKIPPED:
        record = tmp_path / "run" / "diagnostics" / f"bad-step-{step:06d}"
        assert f"step {step} skipped: loss " in said
        assert str(record) in said
        noted = json.loads((record / "step.json").read_text())
        assert (noted["step"], noted["epoch"], noted["batch"]) == (step, *divmod(step - 1, BATCHES))
    assert "step 2 skipped: loss nan, gradient norm nan" in said
    assert require_finite_files(tmp_path / "run") > 100


def test_a_bad_step_is_taken_again_from_the_run_folder_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A picture breaks one layer; the record finds picture and layer again, and says the same numbers otherwise."""
    cfg = settings(data={"batch_size": 256, "loader": "worker", "workers": 0}, loop={"micro_batch": 100})
    fit(cfg, out=tmp_path / "sound", quiet=True)
    place = tmp_path / "run" / "diagnostics" / "bad-step-000006"
    broken: list[Tensor] = []
    forward = ViT.forward

    def break_one(model: ViT, images: Tensor) -> Tensor:
        total = float(model.get_parameter("blocks.0.mlp.fc1.weight").detach().abs().sum())
        if not broken and model.training and total == wanted:
            broken.append(images[17].clone())  # of step 6
        layer: Any = model.get_submodule("blocks.0.mlp.fc2")
        layer.has_met = bool(broken) and bool((images == broken[0]).flatten(1).all(1).any())
        return forward(model, images)

    def fc2(layer: nn.Linear, given: tuple[Tensor], output: Tensor) -> Tensor | None:
        return output * math.nan if getattr(layer, "has_met", False) else None

    build = ViT.__init__

    def built(model: ViT, *given: Any) -> None:
        build(model, *given)
        model.get_submodule("blocks.0.mlp.fc2").register_forward_hook(fc2)

    wanted = float(stored(tmp_path / "sound", 5).model()["blocks.0.mlp.fc1.weight"].abs().sum())
    monkeypatch.setattr(ViT, "forward", break_one)
    monkeypatch.setattr(ViT, "__init__", built)
    fit(cfg, out=tmp_path / "run", quiet=True)
    assert next(row["step"] for row in rows_of(tmp_path / "run") if row["train/skipped"]) == 6

    torch.manual_seed(7)
    before = torch.get_rng_state()
    found = replay_bad_step(place)
    assert torch.equal(torch.get_rng_state(), before)
    assert found.is_bad
    assert math.isnan(found.loss)
    assert found.first_bad_module == "blocks.0.mlp.fc2"
    assert "patch_embed.proj.weight" in found.bad_gradients
    assert found.recorded["step"] == 6
    assert found.recorded["batch"] == 1

    broken[0] = broken[0] + 1  # mended: then it is the step of the undisturbed run, dropout and parts included
    mended = replay_bad_step(place)
    row = next(row for row in rows_of(tmp_path / "sound") if row["step"] == 6)
    assert not mended.is_bad
    assert (mended.first_bad_module, mended.bad_gradients) == (None, [])
    assert mended.loss == pytest.approx(row["train/loss"], rel=1e-6)
    assert mended.grad_norm == pytest.approx(row["train/grad_norm"], rel=1e-5)
    assert differing(tensors_of(stored(tmp_path / "run", 5)), tensors_of(stored(tmp_path / "sound", 5))) == []


def test_three_in_a_row_go_back_once_with_half_the_learning_rate(
    faults: Faults, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    faults.at |= {(1, 1): once(nan_loss), (1, 2): once(infinite_gradients), (1, 3): once(nan_loss)}
    run = fit(settings(checkpoint={"every_steps": None}), out=tmp_path / "run")
    assert run.state == "finished"
    second = [(1, batch) for batch in range(BATCHES)]
    assert faults.taken == [(0, batch) for batch in range(BATCHES)] + second + second
    rows = rows_of(tmp_path / "run")
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5, 6, 7, 8, 5, 6, 7, 8]
    rates = [row["train/lr"] for row in rows]
    assert rates[:8] == pytest.approx([1e-3] * 8)
    assert rates[8:] == pytest.approx([5e-4] * 4)
    assert rows[8]["train/loss"] == rows[4]["train/loss"]  # it began again where the checkpoint was
    end = stored(tmp_path / "run", 8).trainer()
    assert end["course"]["went_back"] == 1
    assert float(end["state"]["lr_factor"]) == 0.5
    assert "back to step 4, with half the learning rate (0.0005 at most)" in capfd.readouterr().err
    require_finite_files(tmp_path / "run")


@pytest.mark.parametrize("fault", [nan_loss, infinite_gradients, nan_in_part(3)], ids=["nan", "inf", "a part"])
def test_the_second_time_it_ends_and_names_the_evidence(fault: Any, faults: Faults, tmp_path: Path) -> None:
    faults.at |= {(1, batch): fault for batch in (1, 2, 3)}
    micro = {"micro_batch": 64, "ema_decay": 0.9}
    with pytest.raises(DivergedError) as caught:
        fit(settings(loop=micro, checkpoint={"every_steps": None}), out=tmp_path / "run", quiet=True)
    error = caught.value
    assert error.exit_code == EXIT_DIVERGED
    assert "diverged with a learning rate of 0.0005, for the second time" in error.what
    assert "3 steps in a row that are not finite" in error.what
    assert error.where == str(tmp_path / "run" / "diagnostics" / "bad-step-000006")
    assert (tmp_path / "run" / "diagnostics" / "bad-step-000006").is_dir()
    assert "--optim.lr" in str(error.fix)
    assert len(faults.taken) == BATCHES + 4 + 4
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    assert status["state"] == "diverged"
    assert "DivergedError" in (tmp_path / "run" / "train.log").read_text()
    require_finite_files(tmp_path / "run")


def test_the_first_bad_step_is_kept_even_where_one_is_too_many(faults: Faults, tmp_path: Path) -> None:
    faults.at[0, 2] = nan_loss
    with pytest.raises(DivergedError) as caught:
        fit(settings(loop={"most_bad_steps": 1}), out=tmp_path / "run", quiet=True)
    assert caught.value.where == str(tmp_path / "run" / "diagnostics" / "bad-step-000003")
    assert replay_bad_step(str(caught.value.where)).recorded["step"] == 3


def test_weights_that_are_not_finite_reach_no_file(faults: Faults, tmp_path: Path) -> None:
    """An update can overflow though its gradients were finite: at the last step before an evaluation nothing else
    would notice, and the evaluation is the first and so the best."""

    def overflow(state: TrainState) -> None:
        if faults.taken[-1] == (0, BATCHES - 1):
            next(state.model.parameters()).data[0] = math.inf

    cfg = settings(checkpoint={"every_steps": None}, loop={"ema_decay": None})
    with pytest.raises(DivergedError, match="NaN or infinite"):
        fit(cfg, out=tmp_path / "run", quiet=True, after_step=[overflow])
    assert not (tmp_path / "run" / "model").exists()
    require_finite_files(tmp_path / "run")


def test_a_full_disk_for_the_record_does_not_end_the_run(
    faults: Faults, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def full(path: Path, content: bytes) -> None:
        raise OSError(28, "No space left on device")

    faults.at[0, 1] = nan_loss
    monkeypatch.setattr("vitscope.train.bad_step.write_atomically", full)
    assert fit(settings(loop={"epochs": 1}), out=tmp_path / "run").state == "finished"
    assert "step 2 skipped: loss nan" in capfd.readouterr().err


def test_as_a_process_it_exits_with_4(tmp_path: Path) -> None:
    """Nothing is injected: the normalisation itself sends pictures to infinity."""
    yaml = write_settings(tmp_path / "settings.yaml", {"data": {"std": [1e-39], "batch_size": 256}})
    ended = train(str(yaml), "--out", str(tmp_path / "run"))
    assert ended.code == EXIT_DIVERGED, ended
    assert "Traceback" not in ended.err
    *_, what, where, fix = ended.err.strip().splitlines()
    assert what.startswith("error: training diverged with a learning rate of")
    assert fix.startswith("to do: go on with a lower one (it was ")
    assert " vitscope train --resume --out " in fix
    record = Path(where.removeprefix("where: "))
    assert record.parent == tmp_path / "run" / "diagnostics"
    assert (tmp_path / "run" / "checkpoints" / "last").read_text() == "step-000000\n"
    require_finite_files(tmp_path / "run")
    assert replay_bad_step(record).first_bad_module == "patch_embed.proj"


def test_what_is_no_record_is_refused(tmp_path: Path, faults: Faults) -> None:
    with pytest.raises(VitscopeError, match="not the record of a bad step"):
        replay_bad_step(tmp_path)
    faults.at[0, 1] = nan_loss
    fit(settings(loop={"epochs": 1}), out=tmp_path / "run", quiet=True)
    moved = (tmp_path / "run" / "diagnostics" / "bad-step-000002").rename(tmp_path / "alone")
    with pytest.raises(VitscopeError, match="lies in no run folder"):
        replay_bad_step(moved)


def test_a_run_that_skips_now_and_then_keeps_few_records(faults: Faults, tmp_path: Path) -> None:
    faults.at |= {(epoch, 2 * half): nan_loss for epoch in range(4) for half in range(2)}
    run = fit(settings(loop={"epochs": 4}, checkpoint={"every_steps": None}), out=tmp_path / "run", quiet=True)
    assert run.state == "finished"
    assert len(list((tmp_path / "run" / "diagnostics").iterdir())) == 5
    assert stored(tmp_path / "run", 16).trainer()["course"]["skipped_steps"] == 8
    assert int(final(tmp_path / "run")["/state/updates"]) == 8
