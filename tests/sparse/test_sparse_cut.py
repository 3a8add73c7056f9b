"""The cut in the middle of a round: what was doomed is nothing, and all else goes on as if nothing had happened; for
every kind of unit, optimiser and network."""

from __future__ import annotations

import importlib
import json
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import vitscope
from sparse.convolutions import CONFIGS
from sparse.sparse_models import SMALL
from sparse.tiny_experiments import (
    STEPS,
    STEPS_PER_EPOCH,
    VIT,
    accuracy_by_hand,
    before,
    dense_run,
    experiment,
    logged,
    metrics,
    plan,
    row_of,
    settings,
)
from vitscope.core.errors import ConfigError, VitscopeError
from vitscope.models.build import build_model
from vitscope.models.config import CNNConfig, ViTConfig
from vitscope.models.variants import model_config
from vitscope.sparse.masks import by_units
from vitscope.sparse.rounds.rsst import PauseAt
from vitscope.sparse.rounds.small import chosen
from vitscope.sparse.sparsify import Experiment
from vitscope.sparse.units import Units, units_of
from vitscope.train.checkpoints.store import CheckpointError, Checkpoints
from vitscope.train.signals import StopFlag


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> str:
    return dense_run(tmp_path_factory.mktemp("dense") / "run")


@pytest.fixture(scope="module")
def with_ema(tmp_path_factory: pytest.TempPathFactory, dense: str) -> Experiment:
    config = settings(loop={"ema_decay": 0.9, "epochs": 2})
    return experiment(tmp_path_factory.mktemp("ema") / "x", config, source=dense)


def stage(done: Experiment, name: str = "rsst", number: int = 1) -> Path:
    return done.folder / "seed-0" / f"round-{number}" / name


def units_after(done: Experiment, name: str = "rsst", number: int = 1) -> Units:
    return Units.from_json(json.loads((stage(done, name, number) / "outcome.json").read_text())["units"])


def checkpoint(run: Path, step: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Weights, and what the trainer remembers."""
    place = run / "checkpoints" / f"step-{step:06d}"
    return load_file(place / "model.safetensors"), torch.load(place / "trainer.pt", weights_only=True)


# --- nothing of what is doomed is left -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("optim", "ema"), [("adamw", None), ("sgd", None), ("muon", None), ("adamw", 0.95)], ids=lambda value: str(value)
)
def test_whatever_the_optimiser_what_is_doomed_is_nothing_at_the_cut(
    optim: str, ema: float | None, tmp_path: Path, dense: str
) -> None:
    """54 steps with a linear lambda: the last factor is not 0, so that optimisers push against it to the end."""
    config = settings(
        data={"batch_size": 4},
        optim={"name": optim, "lr": 3e-3, "momentum": 0.9},
        loop={"epochs": 4, "ema_decay": ema},
    )
    done = experiment(tmp_path / "x", config, source=dense, growth="linear", growth_share=0.75)
    row = row_of(done, "rsst")
    weights, _ = checkpoint(stage(done) / "growing" / "run", 54)
    masks = by_units(vitscope.load_model(dense), units_after(done))
    doomed = torch.cat([weights[name][~mask] for name, mask in masks.items()]).abs().max()
    kept = torch.cat([weights[name][mask] for name, mask in masks.items()]).abs().median()
    assert 0 < float(doomed / kept) < 1e-3
    assert row.doomed_share == pytest.approx(float(doomed / kept), rel=1e-3)
    assert row.cut_moved_logits is not None
    assert row.cut_moved_logits < 1e-3
    if ema is None:
        assert row.before_cut_val_accuracy == row.after_cut_val_accuracy


# --- one schedule, one count of steps --------------------------------------------------------------------------------


def test_two_runs_are_one_schedule(with_ema: Experiment, tmp_path: Path) -> None:
    """Epochs, steps and learning rates of both together are those of one run that nobody cut."""
    whole = Path(dense_run(tmp_path / "run"))
    first, second = (stage(with_ema) / name / "run" for name in ("growing", "small"))
    assert logged(first, "train/lr") | logged(second, "train/lr") == logged(whole, "train/lr")
    assert list(logged(first, "train/lr")) == list(range(1, STEPS_PER_EPOCH + 1))
    assert list(logged(second, "train/lr")) == list(range(STEPS_PER_EPOCH + 1, STEPS + 1))
    assert len(set(logged(second, "train/lr").values())) > 1
    assert [row["epoch"] for row in metrics(second) if "val/accuracy" in row] == [1, 2]
    assert int(checkpoint(second, STEPS)[1]["state"]["updates"]) == STEPS


def test_what_the_optimiser_remembers_is_cut_and_not_forgotten(with_ema: Experiment) -> None:
    weights, large = checkpoint(stage(with_ema) / "growing" / "run", STEPS_PER_EPOCH)
    cut, small = checkpoint(stage(with_ema) / "small" / "run", STEPS_PER_EPOCH)
    units = units_after(with_ema)
    for block in (0, 1):
        heads = torch.tensor(units.of("heads")[block]).repeat_interleave(8)
        neurons = torch.tensor(units.of("neurons")[block])
        rows = {"attn.qkv.weight": heads.repeat(3), "attn.qkv.bias": heads.repeat(3), "mlp.fc1.weight": neurons}
        columns = {"attn.proj.weight": heads, "mlp.fc2.weight": neurons}
        for name, kept in {**rows, **columns}.items():
            name_here = f"blocks.{block}.{name}"

            def part(tensor: torch.Tensor, kept: torch.Tensor = kept, of_rows: bool = name in rows) -> torch.Tensor:
                return tensor[kept] if of_rows else tensor[:, kept]

            assert torch.equal(cut[name_here], part(weights[name_here]))
            before, after = (trainer["state"]["optimizer"][name_here] for trainer in (large, small))
            assert before.keys() == after.keys()
            moments = [key for key in before if before[key].shape == weights[name_here].shape]
            assert len(moments) >= 2
            for key in moments:
                assert torch.equal(after[key], part(before[key]))
                assert bool((after[key] != 0).any()), "a memory of nothing would be one that was made anew"
            of_mean = [trainer["hooks"]["ema"][name_here] for trainer in (large, small)]
            assert torch.equal(of_mean[1], part(of_mean[0]))
    assert "sparse_growth" in large["hooks"]
    assert "sparse_growth" not in small["hooks"]


def test_no_best_of_the_large_network_is_the_small_one_s(with_ema: Experiment) -> None:
    """The first evaluation of the small one is its best so far, whatever the growing run had reached."""
    rows = [row for row in metrics(stage(with_ema) / "small" / "run") if "val/accuracy" in row]
    assert rows[0]["best"] is True
    row = row_of(with_ema, "rsst")
    assert row.val_accuracy == max(row["val/accuracy"] for row in rows)
    assert accuracy_by_hand(with_ema.folder / row.model, settings(), "test")[0] == pytest.approx(row.test_accuracy)


def test_accuracies_around_the_cut_are_those_of_the_weights_in_use(with_ema: Experiment, tmp_path: Path) -> None:
    """The growing run is paused before it would evaluate; the small one does it first of all, by the running mean."""
    row = row_of(with_ema, "rsst")
    assert logged(stage(with_ema) / "growing" / "run", "val/accuracy") == {}
    assert logged(stage(with_ema) / "small" / "run", "val/accuracy")[STEPS_PER_EPOCH] == row.after_cut_val_accuracy
    _, trainer = checkpoint(stage(with_ema) / "growing" / "run", STEPS_PER_EPOCH)
    whole = vitscope.load_model(with_ema.folder / row_of(with_ema, "dense").model)
    whole.load_state_dict(trainer["hooks"]["ema"])
    vitscope.save_model(whole, tmp_path / "mean")
    assert accuracy_by_hand(tmp_path / "mean", settings(), "val")[0] == row.before_cut_val_accuracy


# --- kinds of units, kinds of networks -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algorithm", "kind", "other"),
    [
        ("rsst", "heads", "neurons"),
        ("refill", "neurons", "heads"),
        pytest.param("rsst", "neurons", "heads", marks=pytest.mark.slow),
        pytest.param("refill", "heads", "neurons", marks=pytest.mark.slow),
    ],
)
def test_one_kind_alone(algorithm: str, kind: str, other: str, tmp_path: Path, dense: str) -> None:
    done = experiment(tmp_path / "x", source=dense, algorithm=algorithm, units=kind)
    units = units_after(done, algorithm)
    assert units.removed(kind) > 0
    assert units.removed(other) == 0


@pytest.mark.parametrize(
    ("name", "algorithm"),
    [
        ("basic", "rsst"),
        ("cnn", "refill"),
        pytest.param("basic", "refill", marks=pytest.mark.slow),
        pytest.param("cnn", "rsst", marks=pytest.mark.slow),
    ],
)
def test_channels_of_convolutions(name: str, algorithm: str, tmp_path: Path) -> None:
    config = settings(CONFIGS[name])
    done = experiment(tmp_path / "x", config, algorithm=algorithm)
    units, row = units_after(done, algorithm), row_of(done, algorithm)
    total = sum(units.totals("channels"))
    if algorithm == "rsst":
        assert units.removed("channels") == int(total * 0.4)
        assert row.doomed_share is not None
        assert row.doomed_share < 1e-3
    assert 0 < units.removed("channels") < total
    assert row.channels_removed == units.removed("channels") / total
    small: Any = vitscope.load_model(done.folder / row.model)
    assert units_of(small).totals("channels") == units.counts("channels") == row.left("channels")
    assert row.params == sum(parameter.numel() for parameter in small.parameters()) < row_of(done, "dense").params
    assert row.test_accuracy == pytest.approx(accuracy_by_hand(done.folder / row.model, config, "test")[0])


@pytest.mark.slow
def test_channels_of_the_registered_cnn(tmp_path: Path) -> None:
    found: Any = model_config("mnist_cnn")
    config = settings(CNNConfig(**{**vars(found), "num_classes": 4}), data={"name": "synthetic:size=28,count=120"})
    done = experiment(tmp_path / "x", config)
    assert row_of(done, "rsst").channels_removed == pytest.approx(0.4, abs=0.01)


@pytest.mark.parametrize("algorithm", ["rsst", pytest.param("refill", marks=pytest.mark.slow)])
def test_blocks_may_become_empty_where_that_is_allowed(algorithm: str, tmp_path: Path, dense: str) -> None:
    """At 0.9 of 6 heads 5 are gone: one block at least has none, and the next round works with that too."""
    done = experiment(
        tmp_path / "x",
        source=dense,
        algorithm=algorithm,
        rate=0.9,
        rounds=2,
        allow_empty=True,
        fillback=0.0,
        criterion="magnitude",
    )
    for number in (1, 2):
        row = row_of(done, algorithm, number)
        assert 0 in (row.left("heads") or ())
        model: Any = vitscope.load_model(done.folder / row.model)
        assert units_of(model).totals("heads") == row.left("heads")
        assert row.test_accuracy == pytest.approx(accuracy_by_hand(done.folder / row.model, settings(), "test")[0])


def test_a_head_and_the_least_neurons_stay_otherwise(tmp_path: Path, dense: str) -> None:
    done = experiment(tmp_path / "x", source=dense, algorithm="oneshot", rate=0.95, least_neurons=3)
    row = row_of(done, "oneshot")
    assert row.left("heads") == (1, 1)
    assert min(row.left("neurons") or ()) >= 3
    assert sum(row.left("neurons") or ()) == 6


@pytest.mark.parametrize("algorithm", ["rsst", pytest.param("refill", marks=pytest.mark.slow)])
def test_neurons_are_kept_in_multiples(algorithm: str, tmp_path: Path, dense: str) -> None:
    """Rounded up, so that no fewer stay than the schedule says."""
    done = experiment(tmp_path / "x", source=dense, algorithm=algorithm, round_to=4, rate=0.3)
    left = row_of(done, algorithm).left("neurons") or ()
    assert all(count % 4 == 0 for count in left)
    if algorithm == "rsst":
        assert 28 <= sum(left) < 28 + 8


def test_where_nothing_goes_the_network_trains_on_whole(tmp_path: Path, dense: str) -> None:
    """A tenth of 6 heads is none: said, and trained for as long."""
    said: list[str] = []
    done = experiment(tmp_path / "x", source=dense, units="heads", rate=0.1, say=said.append)
    row = row_of(done, "rsst")
    assert (row.heads_removed, row.lambda_end, row.epochs) == (0.0, None, 2)
    assert any("nothing is removed" in line for line in said)


@pytest.mark.slow
@pytest.mark.parametrize("criterion", ["magnitude", "l1", "l2", "random"])
def test_every_criterion_in_a_round(criterion: str, tmp_path: Path, dense: str) -> None:
    done = experiment(tmp_path / "x", source=dense, algorithm="oneshot", criterion=criterion)
    assert units_after(done, "oneshot").removed("neurons") == 16


def test_remain_is_refill_s(tmp_path: Path, dense: str) -> None:
    done = experiment(tmp_path / "x", source=dense, algorithm="refill", criterion="remain", fillback=0.0)
    assert units_after(done, "refill").removed("neurons") > 0


def test_other_schedules_reach_reg_too(tmp_path: Path, dense: str) -> None:
    done = experiment(tmp_path / "x", source=dense, growth="cubic", reg=2.0)
    found = logged(stage(done) / "growing" / "run", "sparse/lambda")
    assert list(found.values()) == pytest.approx([2 * (step / STEPS_PER_EPOCH) ** 3 for step in found])
    assert row_of(done, "rsst").lambda_end == pytest.approx(2.0)


def test_a_network_that_was_cut_can_be_cut_again(tmp_path: Path, dense: str) -> None:
    """The small network's run is a run like any other: its own 6 - 2 heads are the original now."""
    first = experiment(tmp_path / "first", source=dense)
    run = stage(first) / "small" / "run"
    small: Any = vitscope.load_model(run)
    again = experiment(tmp_path / "again", settings(small.config), source=str(run), controls="reinit")
    assert row_of(again, "dense").params == row_of(first, "rsst").params
    assert row_of(again, "dense").test_accuracy == row_of(first, "rsst").test_accuracy
    assert row_of(again, "rsst").params < row_of(first, "rsst").params
    assert units_after(again).totals("heads") == units_of(small).totals("heads")


# --- what cannot be done ---------------------------------------------------------------------------------------------


def test_one_epoch_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="two epochs"):
        experiment(tmp_path / "x", epochs=1)
    assert not (tmp_path / "x" / "seed-0").exists()


@pytest.mark.parametrize(("units", "model"), [("channels", VIT), ("heads", CONFIGS["cnn"])])
def test_units_the_network_has_not_are_refused(units: str, model: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="which this network has"):
        experiment(tmp_path / "x", settings(model), units=units)


def test_a_pause_without_a_checkpoint_cuts_nothing(tmp_path: Path, dense: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full when the run is paused: what is on it is older, and its doomed units still matter."""
    save = Checkpoints.save

    def full(store: Checkpoints, step: int, *args: Any, **kwargs: Any) -> Any:
        if step == STEPS_PER_EPOCH:
            raise CheckpointError("no space left on device")
        return save(store, step, *args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(Checkpoints, "save", full)
        with pytest.raises(VitscopeError, match="no checkpoint of step 6"):
            experiment(tmp_path / "x", source=dense)
    assert not (tmp_path / "x" / "seed-0" / "round-1" / "rsst" / "small").exists()
    done = experiment(tmp_path / "x", source=dense, resume=True)
    assert row_of(done, "rsst").lambda_end == pytest.approx(1.0)


def test_a_signal_just_after_the_pause_still_stops_with_its_code(tmp_path: Path, dense: str) -> None:
    """Heard when the growing run had left and nobody had looked yet."""
    stop, rounds = StopFlag(), importlib.import_module("vitscope.sparse.rounds.rsst")
    fit = rounds.fit

    def paused_then_signalled(*args: Any, **kwargs: Any) -> Any:
        run = fit(*args, **kwargs)
        stop.raise_flag(signal.SIGTERM)
        return run

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(rounds, "fit", paused_then_signalled)
        done = experiment(tmp_path / "x", source=dense, stop=stop)
    assert (done.state, done.exit_code) == ("stopped", 143)


def test_a_signal_before_the_pause_is_not_taken_for_one() -> None:
    stop = StopFlag()
    stop.raise_flag(signal.SIGINT)
    work: Any = type("Work", (), {"step": 3, "stop": stop})
    PauseAt(3).see(work)
    assert not stop.is_paused
    assert stop.exit_code == 130


def test_kinds_that_are_not_asked_for_lose_none() -> None:
    units = units_of(build_model(ViTConfig(**SMALL)))
    scores = {kind: [torch.rand(count) for count in units.totals(kind)] for kind in units.kinds}
    after = chosen(plan(units="neurons"), units, scores, {"heads": 3, "neurons": 10})
    assert (after.removed("heads"), after.removed("neurons")) == (0, 10)


def test_a_cut_that_still_mattered_is_said(tmp_path: Path, dense: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.import_module("vitscope.sparse.rounds.rsst"), "MOST_MOVED", -1.0)
    said: list[str] = []
    experiment(tmp_path / "x", source=dense, say=said.append)
    assert any("still mattered" in line for line in said)


def test_the_trap_itself_notices_when_nothing_was_interrupted() -> None:
    with pytest.raises(AssertionError, match="nothing was interrupted"), before("json.dumps", 1, lambda: None):
        pass
