"""The record of a bad step: what it holds, what it never holds, and what taking it again shows."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from vitscope.core.errors import VitscopeError
from vitscope.models.build import build_model
from vitscope.models.config import CNNConfig
from vitscope.train.bad_step import MOST_RECORDS, read_bad_step, record_bad_step
from vitscope.train.config import LossConfig, OptimConfig
from vitscope.train.objective import Objective
from vitscope.train.optim.optimizer import Optimizer
from vitscope.train.replay import take_again
from vitscope.train.state import TrainState

CPU = torch.device("cpu")


def make() -> TrainState:
    torch.manual_seed(0)
    model = build_model(CNNConfig(img_size=8, widths=(4,), num_classes=3)).train()
    return TrainState(model, Optimizer(model, OptimConfig()), lr_table=torch.full((10,), 0.1), device=CPU)


def row(step: int = 12, **more: Any) -> dict[str, Any]:
    return {"step": step, "epoch": 3, "train/loss": math.nan, "train/grad_norm": math.inf, "train/skipped": 1.0, **more}


def record(folder: Path, state: TrainState) -> Path:
    place = record_bad_step(folder, state, row(), seed=5, epoch=2, batch=1)
    assert place is not None
    return place


def seed(epoch: int, batch: int, rank: int = 0) -> None:
    torch.manual_seed(100 * epoch + 10 * rank + batch)


def batch_of(count: int = 6) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(count, 1, 8, 8, generator=generator), torch.arange(count) % 3


def test_it_holds_address_outcome_and_weights(tmp_path: Path) -> None:
    state = make()
    state.micro_batch = 4
    place = record(tmp_path / "diagnostics", state)
    assert place == tmp_path / "diagnostics" / "bad-step-000012"
    text = (place / "step.json").read_text()
    assert "NaN" in text
    json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is not strict JSON"))
    found = read_bad_step(place)
    # The loader counts epochs from 0, the rows from 1: the record says what the loader wants.
    assert {key: found[key] for key in ("seed", "epoch", "batch", "micro_batch", "world", "step")} == {
        "seed": 5,
        "epoch": 2,
        "batch": 1,
        "micro_batch": 4,
        "world": 1,
        "step": 12,
    }
    assert math.isnan(found["train/loss"])
    assert found["train/grad_norm"] == math.inf
    weights = load_file(place / "model.safetensors")
    assert weights.keys() == state.model.state_dict().keys()
    assert all(torch.equal(weights[name], value) for name, value in state.model.state_dict().items())


def test_weights_that_are_not_finite_are_not_written(tmp_path: Path) -> None:
    state = make()
    next(state.model.parameters()).data.flatten()[0] = math.nan
    place = record(tmp_path, state)
    assert [path.name for path in place.iterdir()] == ["step.json"]
    assert read_bad_step(place)["weights_are_finite"] is False
    with pytest.raises(VitscopeError, match="were not finite") as refused:
        take_again(place, state, [batch_of()], Objective(state.model, LossConfig()), seed)
    assert "to do: replay an earlier bad step" in str(refused.value)


def test_there_are_never_many(tmp_path: Path) -> None:
    state = make()

    def record(step: int) -> Path | None:
        return record_bad_step(tmp_path, state, row(step), seed=5, epoch=2, batch=1)

    places = [record(step) for step in range(MOST_RECORDS + 3)]
    assert [place is not None for place in places] == [True] * MOST_RECORDS + [False] * 3
    assert len(list(tmp_path.iterdir())) == MOST_RECORDS


def test_the_record_of_a_step_taken_back_is_replaced(tmp_path: Path) -> None:
    """Training went back and met the step again, with other weights: the old record would be a lie. There is room for
    it, however many there are."""
    state = make()
    for step in range(MOST_RECORDS):
        record_bad_step(tmp_path, state, row(step), seed=5, epoch=2, batch=1)
    other = make()
    next(other.model.parameters()).data += 1.0
    again = {**row(0), "train/grad_norm": 7.0}
    place = record_bad_step(tmp_path, other, again, seed=5, epoch=2, batch=1)
    assert place is not None
    assert place == tmp_path / "bad-step-000000"
    assert read_bad_step(place)["train/grad_norm"] == 7.0
    kept = load_file(place / "model.safetensors")
    assert all(torch.equal(kept[name], value) for name, value in other.model.state_dict().items())
    assert len(list(tmp_path.iterdir())) == MOST_RECORDS
    next(other.model.parameters()).data[0] = math.nan
    assert record_bad_step(tmp_path, other, again, seed=5, epoch=2, batch=1) == place
    assert [path.name for path in place.iterdir()] == ["step.json"], "nothing of the old one is left"


def test_taking_it_again_uses_the_recorded_weights_parts_and_dropout(tmp_path: Path) -> None:
    state, (images, labels) = make(), batch_of()
    state.micro_batch = 4
    place = record(tmp_path, state)
    objective = Objective(state.model, LossConfig())
    seed(2, 1)
    parts = [objective(images[:4], labels[:4])[0] * 4 / 6, objective(images[4:], labels[4:])[0] * 2 / 6]
    wanted = sum(float(part.detach()) for part in parts)
    other = make()
    torch.nn.init.normal_(next(other.model.parameters()))  # other weights, which must not matter
    found = take_again(place, other, [(images, labels)], Objective(other.model, LossConfig()), seed)
    assert found.loss == pytest.approx(wanted, rel=1e-6)
    assert (found.is_bad, found.first_bad_module, found.bad_gradients) == (False, None, [])
    assert math.isfinite(found.grad_norm)
    assert all(parameter.grad is None for parameter in other.model.parameters())
    assert found.recorded["step"] == 12


def test_it_names_the_first_module_that_is_not_finite(tmp_path: Path) -> None:
    state, (images, labels) = make(), batch_of()
    place = record(tmp_path, state)
    images[3] = math.inf
    found = take_again(place, state, [(images, labels)], Objective(state.model, LossConfig()), seed)
    convolutions = [name for name, module in state.model.named_modules() if isinstance(module, torch.nn.Conv2d)]
    assert found.is_bad
    assert found.first_bad_module == convolutions[0]
    assert math.isnan(found.loss)
    assert f"{convolutions[0]}.weight" in found.bad_gradients
    hooks = [module._forward_hooks for module in state.model.modules()]
    assert not any(hooks)


def test_gradients_alone_can_be_bad(tmp_path: Path) -> None:
    state, (images, labels) = make(), batch_of()
    place = record(tmp_path, state)

    def objective(images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        logits = state.model(images)
        zero = (logits - logits.detach()).abs().sum()
        return torch.sqrt(zero) + 1.0, logits.detach()  # 1, and infinitely steep

    found = take_again(place, state, [(images, labels)], objective, seed)
    assert (found.loss, found.first_bad_module) == (1.0, None)
    assert found.is_bad
    assert len(found.bad_gradients) > 3
    assert not math.isfinite(found.grad_norm)


def test_a_record_from_before_processes_were_counted_is_of_one(tmp_path: Path) -> None:
    place = record(tmp_path, make())
    older = json.loads((place / "step.json").read_text())
    del older["world"]
    (place / "step.json").write_text(json.dumps(older))
    assert read_bad_step(place)["world"] == 1


@pytest.mark.parametrize("content", [None, "", "{", "[1"])
def test_what_is_no_record_is_refused(content: str | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "step.json").write_text(content)
    with pytest.raises(VitscopeError, match="not the record of a bad step") as caught:
        read_bad_step(tmp_path)
    assert "diagnostics/bad-step-" in str(caught.value.fix)
