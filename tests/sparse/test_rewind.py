"""The rewind point: a copy of its own, whose hash tells whether it changed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from sparse.sparse_models import vit
from train.tiny_runs import batch, differing, state_of, take, tiny, weights
from vitscope.core.errors import ConfigError, VitscopeError
from vitscope.sparse.rewind import RewindKeeper, RewindPoint, hash_weights
from vitscope.train import finish
from vitscope.train.fit import fit
from vitscope.train.state import TrainState


def test_training_does_not_reach_it_and_going_back_is_exact() -> None:
    model = vit().train()
    point, start, state = RewindPoint.of(model), weights(model), state_of(model)
    take(state, *batch())
    assert differing(weights(model), start)
    point.check()
    places = [parameter.data_ptr() for parameter in model.parameters()]
    point.restore(model)
    assert differing(weights(model), start) == set()
    assert [parameter.data_ptr() for parameter in model.parameters()] == places, "into the memory the model has"
    take(state, *batch())
    point.check()


def test_whoever_writes_into_it_is_found_out() -> None:
    point = RewindPoint.of(vit())
    point.weights["head.bias"][0] += 1e-7
    with pytest.raises(VitscopeError, match="the rewind point has changed"):
        point.check()
    with pytest.raises(VitscopeError, match="the rewind point has changed"):
        point.restore(vit())


def test_the_hash_knows_names_shapes_types_and_bytes_but_no_order() -> None:
    one = {"a": torch.zeros(4), "b": torch.ones(2)}
    others = [
        {"c": one["a"], "b": one["b"]},
        {"a": one["a"].view(2, 2), "b": one["b"]},
        {"a": one["a"].half(), "b": one["b"]},
        {"a": -one["a"], "b": one["b"]},  # -0.0 is other bytes
    ]
    assert hash_weights(one) == hash_weights({"b": one["b"], "a": one["a"]})
    assert len({hash_weights(other) for other in (one, *others)}) == 5


def test_it_outlives_the_process_and_damage_is_found(tmp_path: Path) -> None:
    point, file = RewindPoint.of(vit()), tmp_path / "rewind.safetensors"
    point.save(file)
    again = RewindPoint.load(file)
    assert again.hash == point.hash
    assert differing(again.weights, point.weights) == set()
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(VitscopeError, match="not the one that was saved"):
        RewindPoint.load(file)
    file.write_bytes(b"no tensors")
    with pytest.raises(VitscopeError, match="cannot be read"):
        RewindPoint.load(file)


def test_a_run_keeps_the_weights_of_a_step_as_it_goes_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finish, "_draw", lambda *_: None)
    seen: dict[int, str] = {}

    def note(state: TrainState) -> None:
        seen[int(state.updates)] = hash_weights(state.model.state_dict())

    keeper = RewindKeeper(tmp_path / "rewind.safetensors", step=2)
    fit(tiny(loop={"epochs": 3}), out=tmp_path / "run", quiet=True, after_step=[note], between_steps=[keeper])
    assert RewindPoint.load(keeper.path).hash == seen[2]
    assert len(set(seen.values())) == 3, "every step has weights of its own"
    with pytest.raises(ConfigError, match="1 or more, received step 0"):
        RewindKeeper(tmp_path / "rewind.safetensors", step=0)
