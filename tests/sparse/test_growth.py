"""Growing regularisation: the law, what it leaves alone, and real runs whose doomed units are gone at T."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from train.test_step import NoLooking
from train.tiny_runs import VIT, batch, differing, network, state_of, take, tiny, weights
from vitscope.core.errors import ConfigError, InputError
from vitscope.sparse.growth import SCHEDULES, Growth, GrowthHook, doomed_share
from vitscope.sparse.masks import by_units
from vitscope.sparse.units import Units, units_of
from vitscope.train import finish
from vitscope.train.fit import fit
from vitscope.train.signals import StopFlag
from vitscope.train.state import TrainState
from vitscope.weights.load import load_model

DOOMED = Units(
    {
        "heads": ((False, True), (True, False)),
        "neurons": ((True,) * 20 + (False,) * 44, (False,) * 50 + (True,) * 14),
    }
)


def test_lambda_is_the_formula() -> None:
    growth = Growth(steps=10, reg=0.7, exp=4)
    wanted = [0.7 * (math.exp((t / 10) ** 4) - 1) / (math.e - 1) for t in range(11)]
    torch.testing.assert_close(growth.table(), torch.tensor(wanted, dtype=torch.float64))


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("steps", [1, 7, 5000])
def test_every_schedule_rises_from_0_to_reg_and_pulls_20_in_all(name: str, steps: int) -> None:
    growth = Growth(steps=steps, reg=0.3, schedule=name)
    table = growth.table()
    assert (float(table[0]), float(table[-1])) == (0.0, pytest.approx(0.3))
    assert bool((table.diff() > 0).all())
    assert float((growth.eta * table).sum()) == pytest.approx(20)
    factors = (1 - growth.eta * table).clamp(min=0)
    assert float(factors.prod()) <= math.exp(-20)


def test_the_schedules_by_name() -> None:
    x = torch.tensor([0.5], dtype=torch.float64)
    found = {name: float(law(x, 4.0)) for name, law in SCHEDULES.items()}
    assert found == pytest.approx(
        {
            "rsst": (math.exp(0.5**4) - 1) / (math.e - 1),
            "linear": 0.5,
            "quadratic": 0.25,
            "cubic": 0.125,
            "exponential": (math.exp(0.5) - 1) / (math.e - 1),
        }
    )
    with pytest.raises(ConfigError, match="did you mean 'quadratic'"):
        Growth(steps=1, schedule="quadratc")
    with pytest.raises(ConfigError, match=r"growth\.steps: expected 1 or more, received 0"):
        Growth(steps=0)
    with pytest.raises(ConfigError, match="a positive number"):
        Growth(steps=1, reg=0.0)


def test_doomed_entries_shrink_by_the_law_and_others_feel_nothing() -> None:
    growth, steps = Growth(steps=100, reg=2.0, schedule="linear"), 5
    found = []
    for hooks in ([], [GrowthHook(DOOMED, growth)]):
        model = network()
        state = state_of(model, lr_table=torch.zeros(100))  # only the hook moves anything
        told = [take(state, *batch(seed=n), after=hooks) for n in range(steps)]
        found.append(weights(model))
    plain, drawn = found
    marks = by_units(network(), DOOMED)
    factor = float((1 - growth.eta * growth.table()[1 : steps + 1]).prod())
    assert factor < 0.95
    for name, tensor in plain.items():
        doomed = marks.get(name, torch.zeros_like(tensor, dtype=torch.bool))
        assert torch.equal(drawn[name][~doomed], tensor[~doomed]), "to the bit"
        torch.testing.assert_close(drawn[name][doomed], tensor[doomed] * factor)
    assert [row["sparse/lambda"] for row in told] == pytest.approx(growth.table()[1 : steps + 1].tolist())


def test_the_regularised_set_is_never_empty() -> None:
    whole = units_of(network())
    with pytest.raises(InputError, match="no unit is doomed"):
        GrowthHook(whole.without(whole), Growth(steps=5))
    marks = by_units(network(), DOOMED)
    per_head, per_neuron = 4 * 16 * 8 + 3 * 8, 2 * 16 + 1
    assert sum(int(mark.sum()) for mark in marks.values()) == 2 * per_head + 34 * per_neuron


def test_a_skipped_step_draws_nothing_and_does_not_count() -> None:
    found = []
    for bad in (set(), {2}):
        model = network()
        state, hook = state_of(model, lr=0.01), GrowthHook(DOOMED, Growth(steps=20))
        for number in range(4):
            images, labels = batch(seed=number)
            if number in bad:
                before = weights(model)
                take(state, images * math.inf, labels, after=[hook])
                assert differing(weights(model), before) == set()
            take(state, images, labels, after=[hook])
        found.append(weights(model))
    assert differing(*found) == set()


def test_the_hook_works_in_place_and_the_host_never_looks() -> None:
    model = network()
    state, hook = state_of(model), GrowthHook(DOOMED, Growth(steps=5))
    take(state, *batch(), after=[hook])
    places, before = [parameter.data_ptr() for parameter in model.parameters()], weights(model)
    with NoLooking(), torch.no_grad():
        hook(state)
    assert [parameter.data_ptr() for parameter in model.parameters()] == places
    assert differing(weights(model), before)
    largest = hook.state_dict()["largest"]
    hook.load_state_dict({**hook.state_dict(), "largest": torch.tensor(7.0)})
    assert hook.state_dict()["largest"] is largest, "loaded into the memory a captured step reads"
    assert float(largest) == 7


def test_after_t_lambda_is_held() -> None:
    state, hook = state_of(network()), GrowthHook(DOOMED, Growth(steps=3, reg=0.5))
    seen = [take(state, *batch(seed=n), after=[hook])["sparse/lambda"] for n in range(6)]
    assert seen[2:] == [0.5] * 4
    assert seen[0] < seen[1] < 0.5


@pytest.mark.parametrize("optim", [{"name": "adamw", "betas": (0.9, 0.9)}, {"name": "muon"}], ids=["adamw", "muon"])
def test_optimisers_that_make_noise_large_do_not_hold_doomed_units_up(optim: dict[str, Any]) -> None:
    growth = Growth(steps=120, schedule="linear")
    assert growth.eta * growth.reg < 0.5, "else the last step alone would do"
    model = network(large=False)
    state, hook = state_of(model, lr=1e-3, optim=optim), GrowthHook(DOOMED, growth)
    largest = 0.0
    for number in range(growth.steps):
        take(state, *batch(4, seed=number), after=[hook])
        if number == 20:
            largest = doomed_share(model, DOOMED)
    assert largest > 0.5, "they train at first"
    assert doomed_share(model, DOOMED) < 1e-6


# --- real runs -------------------------------------------------------------------------------------------------------


def run(out: Path, growth: Growth, *, doomed: Units = DOOMED, extra: Any = (), optim: Any = None, **more: Any) -> Any:
    config = tiny(data={"batch_size": 24}, loop={"epochs": growth.steps // 3}, optim={"lr": 3e-3, **(optim or {})})
    hook = GrowthHook(doomed, growth)
    return fit(config, out=out, quiet=True, after_step=[hook, *extra], **more)


def last(out: Path) -> dict[str, Tensor]:
    return load_file(out / "checkpoints" / (out / "checkpoints" / "last").read_text().strip() / "model.safetensors")


@pytest.mark.parametrize("optim", ["adamw", "muon"])
def test_doomed_units_are_gone_at_the_end_of_a_real_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, optim: str
) -> None:
    monkeypatch.setattr(finish, "_draw", lambda *_: None)
    done = run(tmp_path / "run", Growth(steps=60), optim={"name": optim})
    told = [row["sparse/lambda"] for row in done.metrics if "sparse/lambda" in row]
    assert len(told) == 60
    assert told[-1] == 1.0, "lambda is logged, and reaches reg"
    assert told == sorted(told)
    model: Any = load_model(done.model_folder)
    model.load_state_dict(last(tmp_path / "run"))
    assert model.config == VIT
    assert doomed_share(model, DOOMED) < 1e-3
    assert doomed_share(network(), DOOMED) > 1, "it tells what is gone from what is not"


def test_resuming_equals_not_stopping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finish, "_draw", lambda *_: None)
    growth, stop = Growth(steps=9), StopFlag()

    def enough(state: TrainState) -> None:
        if int(state.updates) == 4:
            stop.raise_flag()

    whole = run(tmp_path / "whole", growth)
    assert run(tmp_path / "halves", growth, extra=[enough], stop=stop).state == "stopped"
    other = Growth(steps=9, reg=0.5)
    with pytest.raises(InputError, match=r"another growth \(growth\)"):
        run(tmp_path / "halves", other, resume=True)
    halves = run(tmp_path / "halves", growth, resume=True)
    assert differing(last(tmp_path / "whole"), last(tmp_path / "halves")) == set()
    told = [[row["sparse/lambda"] for row in one.metrics if "sparse/lambda" in row] for one in (whole, halves)]
    assert told[0] == told[1]
