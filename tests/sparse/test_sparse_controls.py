"""What networks are held against: as many epochs, the right weights to begin with, as much removed."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import vitscope
from sparse.sparse_models import vit
from sparse.tiny_experiments import dense_run, experiment, metrics, row_of, settings, weights_in
from train.tiny_runs import differing
from vitscope.core.config import updated
from vitscope.core.errors import ConfigError
from vitscope.models.config import ViTConfig
from vitscope.sparse.config import SparseConfig
from vitscope.sparse.ground import Ground
from vitscope.sparse.masks import all_kept, by_magnitude
from vitscope.sparse.rows import Row, read_rows
from vitscope.sparse.sparsify import Experiment, how_far
from vitscope.sparse.surgery import shrink
from vitscope.sparse.units import Units
from vitscope.train.config.read import read_train_config

CONTROLS = ("dense", "random", "reinit", "oneshot")


@pytest.fixture(scope="module")
def rsst(tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    return experiment(tmp_path_factory.mktemp("rsst") / "x", rounds=2, controls="all")


@pytest.fixture(scope="module")
def imp(tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    """A rate at which floating point would lose a weight: 1 - 0.7 is 0.30000000000000004."""
    return experiment(tmp_path_factory.mktemp("imp") / "x", algorithm="imp", rate=0.3, controls="all")


@pytest.fixture(scope="module")
def refill(tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    return experiment(tmp_path_factory.mktemp("refill") / "x", algorithm="refill", controls="all")


def place(done: Experiment, name: str, number: int = 1) -> Path:
    return done.folder / "seed-0" / f"round-{number}" / name


def units_in(done: Experiment, name: str, number: int = 1) -> Units:
    return Units.from_json(json.loads((place(done, name, number) / "outcome.json").read_text())["units"])


def rewind_of(done: Experiment) -> dict[str, torch.Tensor]:
    return load_file(done.folder / "seed-0" / "rewind.safetensors")


def trained(done: Experiment) -> Any:
    return vitscope.load_model(done.folder / row_of(done, "dense").model)


def test_all_of_them_in_every_round_in_one_table(rsst: Experiment) -> None:
    found = [(row.round, row.network) for row in rsst.rows]
    each = ["rsst", *(f"control:{name}" for name in CONTROLS)]
    assert found == [(0, "dense"), *((number, name) for number in (1, 2) for name in each)]


def test_controls_that_were_measured_stay_in_the_table(tmp_path: Path) -> None:
    """Where an experiment goes on with more rounds, and with other controls or none."""
    asked: dict[str, Any] = {"algorithm": "oneshot", "controls": "random", "control_rounds": "last"}
    first = experiment(tmp_path / "x", **asked)
    control = row_of(first, "control:random", 1)
    done = experiment(tmp_path / "x", resume=True, **{**asked, "rounds": 3})
    found = [(row.round, row.network) for row in done.rows]
    assert found == [
        (0, "dense"),
        (1, "oneshot"),
        (1, "control:random"),
        *((number, "oneshot") for number in (2, 3)),
        (3, "control:random"),
    ]
    assert row_of(done, "control:random", 1) == control
    assert not place(done, "control-random", 2).exists(), "nobody asked for it, and the third does not go on from it"
    without = experiment(tmp_path / "x", resume=True, **{**asked, "rounds": 3, "controls": "none"})
    assert [(row.round, row.network) for row in without.rows] == found
    assert read_rows(without.folder / "rounds.csv") == without.rows


def test_what_is_drawn_by_lot_on_the_way_is_counted_in() -> None:
    """Three more trainings of 10 s, of which the table will show one."""
    sparse = SparseConfig(rounds=3, controls="random", control_rounds="last", seeds=1)
    rows = [
        Row(seed=0, round=number, network="rsst" if number else "dense", params=1, macs=1, seconds=10.0)
        for number in range(4)
    ]
    assert how_far(rows, sparse) == "network 4 of 5 is done, about 30 s to go"
    assert how_far(rows, updated(sparse, algorithm="oneshot")) == "network 4 of 5 is done, about 10 s to go"


@pytest.mark.parametrize("rounds", ["last", "2"])
def test_beside_one_round_alone_they_are_the_same_networks(rounds: str, rsst: Experiment, tmp_path: Path) -> None:
    said: list[str] = []
    asked = {"rounds": 2, "controls": "random,oneshot", "control_rounds": rounds}
    done = experiment(tmp_path / "x", say=said.append, **asked)
    last = ["rsst", "control:random", "control:oneshot"]
    assert [(row.round, row.network) for row in done.rows] == [(0, "dense"), (1, "rsst"), *((2, name) for name in last)]
    assert "network 5 of 5 is done" in said
    for name in ("control-random/small/run", "control-oneshot/run"):
        ours, theirs = (place(one, name, 2) / "model" for one in (done, rsst))
        assert differing(weights_in(ours), weights_in(theirs)) == set()


def test_which_rounds_have_controls() -> None:
    held = {"all": (1, 2, 3), "last": (3,), "2": (2,), " 3, 1,3 ": (1, 3)}
    assert {words: SparseConfig(rounds=3, control_rounds=words).rounds_held for words in held} == held
    for wrong in ("4", "0", "-1", "1.0", "lst", "1,x", "", ","):
        with pytest.raises(ConfigError, match=r"control_rounds.*all, last, or numbers from 1 to 3 with commas between"):
            SparseConfig(rounds=3, control_rounds=wrong)


@pytest.mark.parametrize("name", ["rsst", "imp", "refill"])
def test_equal_epochs(name: str, request: pytest.FixtureRequest) -> None:
    """Of rsst a round goes on from the round before: two epochs each. The others rewind."""
    done = request.getfixturevalue(name)
    for row in done.rows:
        if row.round and row.network != "dense":
            assert row.epochs == (2 * row.round if name == "rsst" else 2)
            if row.is_control and row.network != "control:random":
                run = (done.folder / row.model).parent
                assert max(line["epoch"] for line in metrics(run) if "val/accuracy" in line) == row.epochs


def test_dense_begins_where_the_algorithm_does(rsst: Experiment, imp: Experiment, refill: Experiment) -> None:
    assert differing(weights_in(place(rsst, "control-dense") / "start"), trained(rsst).state_dict()) == set()
    for done in (imp, refill):
        assert differing(weights_in(place(done, "control-dense") / "start"), rewind_of(done)) == set()
        row = row_of(done, "control:dense", 1)
        assert (row.weights_removed, row.params) == (0.0, row_of(done, "dense").params)


def test_where_rounds_rewind_one_dense_network_is_held_against_all(tmp_path: Path, rsst: Experiment) -> None:
    done = experiment(tmp_path / "x", algorithm="imp", rounds=2, controls="dense")
    first, second = (row_of(done, "control:dense", number) for number in (1, 2))
    assert (second.round, second.model, second.test_accuracy) == (2, first.model, first.test_accuracy)
    assert not place(done, "control-dense", 2).exists()
    longer, longest = (row_of(rsst, "control:dense", number) for number in (1, 2))
    assert longer.epochs < longest.epochs, "rsst goes on, and its dense network trains longer every round"
    assert longer.model != longest.model


def test_by_lot_as_much_goes_and_something_else(rsst: Experiment, imp: Experiment, refill: Experiment) -> None:
    for done, name, rounds in ((rsst, "rsst", 2), (refill, "refill", 1)):
        for number in range(1, rounds + 1):
            ours, theirs = units_in(done, name, number), units_in(done, "control-random", number)
            assert {kind: ours.removed(kind) for kind in ours.kinds} == {k: theirs.removed(k) for k in theirs.kinds}
            assert ours != theirs
    units_in(rsst, "control-random", 2).require_within(units_in(rsst, "control-random", 1))
    ours, theirs = (load_file(place(imp, name) / "masks.safetensors") for name in ("imp", "control-random"))
    assert sum(int(m.sum()) for m in ours.values()) == sum(int(m.sum()) for m in theirs.values())
    assert differing(ours, theirs)
    assert row_of(refill, "control:random").rewind_hash == row_of(refill, "refill").rewind_hash


def test_rounds_by_lot_draw_anew_each(rsst: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the block whose first unit went would lose its first unit again: numbers are counted in what is left."""
    drawn: list[Any] = []

    def noted(*given: Any, **named: Any) -> Any:
        drawn.append(scores(*given, **named))
        return drawn[-1]

    scores = Ground.scores
    monkeypatch.setattr(Ground, "scores", noted)
    asked: dict[str, Any] = {"rounds": 2, "criterion": "random"}
    experiment(tmp_path / "x", **asked)
    first, second = drawn
    for kind in first:
        for before, after in zip(first[kind], second[kind], strict=True):
            together = min(len(before), len(after))
            assert not torch.equal(before[:together], after[:together]) or not together
    again = dict(drawn[0])
    drawn.clear()
    experiment(tmp_path / "y", **asked)
    assert all(torch.equal(*pair) for kind in again for pair in zip(again[kind], drawn[0][kind], strict=True))


def test_networks_of_a_round_are_shown_the_same_pictures(rsst: Experiment, refill: Experiment) -> None:
    """So that what differs between them is what was removed."""
    for done, name, rounds in ((rsst, "rsst", 2), (refill, "refill", 1)):
        for number in range(1, rounds + 1):
            rows = [row_of(done, one, number) for one in (name, *(f"control:{control}" for control in CONTROLS))]
            runs = [(done.folder / row.model).parent / "config.yaml" for row in rows]
            assert len({read_train_config(run).loop.data_seed for run in runs}) == 1


def test_from_new_weights_the_same_network(rsst: Experiment, imp: Experiment, refill: Experiment) -> None:
    for done, name in ((rsst, "rsst"), (refill, "refill")):
        assert units_in(done, "control-reinit") == units_in(done, name)
        small = shrink(trained(done), units_in(done, name))
        began = weights_in(place(done, "control-reinit") / "start")
        assert began.keys() == small.state_dict().keys()
        for old in (small.state_dict(), _cut(done, rewind_of(done), name)):
            assert not torch.equal(began["blocks.0.mlp.fc1.weight"], old["blocks.0.mlp.fc1.weight"])
        assert row_of(done, "control:reinit", 1).rewind_hash is None
    masks = load_file(place(imp, "imp") / "masks.safetensors")
    assert differing(masks, load_file(place(imp, "control-reinit") / "masks.safetensors")) == set()
    began = weights_in(place(imp, "control-reinit") / "start")
    assert all(bool((began[name][~mask] == 0).all()) for name, mask in masks.items())
    assert not torch.equal(began["head.weight"], rewind_of(imp)["head.weight"])


def _cut(done: Experiment, tensors: dict[str, torch.Tensor], name: str) -> dict[str, torch.Tensor]:
    whole = trained(done)
    whole.load_state_dict(tensors)
    return shrink(whole, units_in(done, name)).state_dict()


def test_at_once_as_much_of_the_trained_network_by_magnitude(rsst: Experiment, imp: Experiment) -> None:
    for number in (1, 2):
        ours, theirs = units_in(rsst, "rsst", number), units_in(rsst, "control-oneshot", number)
        assert {kind: ours.removed(kind) for kind in ours.kinds} == {k: theirs.removed(k) for k in theirs.kinds}
        wanted = shrink(trained(rsst), theirs).state_dict()
        assert differing(weights_in(place(rsst, "control-oneshot", number) / "start"), wanted) == set()
    masks = load_file(place(imp, "control-oneshot") / "masks.safetensors")
    mine = load_file(place(imp, "imp") / "masks.safetensors")
    assert sum(int(m.sum()) for m in masks.values()) == sum(int(m.sum()) for m in mine.values()), "to the weight"
    dense = trained(imp).state_dict()
    kept = torch.cat([dense[name][mask] for name, mask in masks.items()]).abs().min()
    gone = torch.cat([dense[name][~mask] for name, mask in masks.items()]).abs().max()
    assert gone <= kept
    began = weights_in(place(imp, "control-oneshot") / "start")
    assert all(torch.equal(began[name], dense[name] * mask) for name, mask in masks.items())


def test_any_share_takes_the_weights_it_is_the_share_of() -> None:
    """A count over a total, as a floating-point share and back, would often be one weight less."""
    model = vit()
    whole = all_kept(model)
    total = sum(mask.numel() for mask in whole.values())
    for gone in range(1, total, 97):
        masks = by_magnitude(model, whole, Fraction(gone, total))
        assert total - sum(int(mask.sum()) for mask in masks.values()) == gone


def test_at_once_is_left_out_where_it_would_be_the_same_network(tmp_path: Path) -> None:
    """imp from a given network rewinds to it: its first round is oneshot already. The second is not."""
    source, said = dense_run(tmp_path / "run"), []
    done = experiment(tmp_path / "imp", source=source, algorithm="imp", rounds=2, controls="oneshot", say=said.append)
    assert [(row.round, row.network) for row in done.rows] == [
        (0, "dense"),
        (1, "imp"),
        (2, "imp"),
        (2, "control:oneshot"),
    ]
    assert sum("left out" in line for line in said) == 1
    done = experiment(
        tmp_path / "at-once", source=source, algorithm="oneshot", criterion="magnitude", controls="oneshot"
    )
    assert [row.network for row in done.rows] == ["dense", "oneshot"]


def test_controls_can_be_asked_for_later(tmp_path: Path) -> None:
    source = dense_run(tmp_path / "run")
    experiment(tmp_path / "x", source=source, algorithm="oneshot")
    done = experiment(tmp_path / "x", source=source, algorithm="oneshot", controls="random", resume=True)
    assert [row.network for row in done.rows if row.is_control] == ["control:random"]


def test_new_weights_are_for_the_network_that_was_given(tmp_path: Path) -> None:
    """Settings may name another model than the source: the source is what is sparsified."""
    source = dense_run(tmp_path / "run")
    other = settings(ViTConfig(**{**vars(settings().model.bare), "depth": 1, "mlp_dim": 12}))
    done = experiment(tmp_path / "x", other, source=source, algorithm="oneshot", controls="reinit")
    assert row_of(done, "control:reinit").params == row_of(done, "oneshot").params
