"""What rounds promise, asked of whole experiments: lambda arrives, the rewind point stays, density falls as it should,
the small network is the masked one, and a row tells of the network that was saved."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import vitscope
from sparse.convolutions import CONFIGS
from sparse.sparse_models import pictures
from sparse.tiny_experiments import (
    STEPS_PER_EPOCH,
    VIT,
    accuracy_by_hand,
    before,
    dense_run,
    experiment,
    logged,
    metrics,
    quickly,
    row_of,
    settings,
    weights_in,
)
from train.tiny_runs import DATA, differing
from vitscope.core.config import updated
from vitscope.core.errors import VitscopeError
from vitscope.data.dataset import open_dataset
from vitscope.models.config import ViTConfig
from vitscope.sparse import measure
from vitscope.sparse.layout import groups_of
from vitscope.sparse.masks import all_kept, apply_masks, by_units
from vitscope.sparse.outcome import Outcome
from vitscope.sparse.refill import gone_by_masks
from vitscope.sparse.rewind import RewindPoint
from vitscope.sparse.rows import read_rows
from vitscope.sparse.sparsify import Experiment
from vitscope.sparse.surgery import shrink
from vitscope.sparse.units import Units, units_of
from vitscope.train.config import CheckpointConfig
from vitscope.train.config.read import read_train_config
from vitscope.train.fit import fit

ROUNDS = 2
RATE = 0.4
HEADS, NEURONS = 6, 40
ROUGHLY = {"ROUNDS": 2, "LEAST_SECONDS": 1e-3}


@contextmanager
def timed_roughly() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        for name, value in ROUGHLY.items():
            patched.setattr(measure, name, value)
        yield


@pytest.fixture(scope="module")
def rsst(tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    with timed_roughly():
        return experiment(tmp_path_factory.mktemp("rsst") / "x", rounds=ROUNDS, timing="all", reg=0.7)


@pytest.fixture(scope="module")
def refill(tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    return experiment(tmp_path_factory.mktemp("refill") / "x", algorithm="refill", rounds=ROUNDS)


@pytest.fixture(scope="module")
def imp(tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    return experiment(tmp_path_factory.mktemp("imp") / "x", algorithm="imp", rounds=3, rate=0.2)


@pytest.fixture(params=["rsst", "refill", "imp"])
def done(request: pytest.FixtureRequest) -> Experiment:
    return request.getfixturevalue(request.param)


def place(done: Experiment, number: int, name: str) -> Path:
    return done.folder / "seed-0" / f"round-{number}" / name


def units_after(done: Experiment, number: int, name: str) -> Units:
    return Units.from_json(json.loads((place(done, number, name) / "outcome.json").read_text())["units"])


def dense_model(done: Experiment) -> Any:
    return vitscope.load_model(done.folder / row_of(done, "dense").model)


# --- 1: what is doomed is regularised, and lambda arrives ------------------------------------------------------------


def test_lambda_is_logged_and_rises_to_reg_at_the_cut(rsst: Experiment) -> None:
    for number in range(1, ROUNDS + 1):
        found = logged(place(rsst, number, "rsst") / "growing" / "run", "sparse/lambda")
        assert list(found) == list(range(1, STEPS_PER_EPOCH + 1)), "every step of the growing run, and none after it"
        law = [0.7 * math.expm1((step / STEPS_PER_EPOCH) ** 4) / (math.e - 1) for step in found]
        assert list(found.values()) == pytest.approx(law, rel=1e-5)
        assert row_of(rsst, "rsst", number).lambda_end == pytest.approx(0.7)
        after = logged(place(rsst, number, "rsst") / "small" / "run", "sparse/lambda")
        assert after == {}, "nothing is doomed in the small network"


def test_what_is_doomed_is_drawn_to_nothing_while_the_rest_trains(rsst: Experiment) -> None:
    before = dense_model(rsst)
    run = place(rsst, 1, "rsst") / "growing" / "run" / "checkpoints" / f"step-{STEPS_PER_EPOCH:06d}"
    at_the_cut = load_file(run / "model.safetensors")
    masks = by_units(before, units_after(rsst, 1, "rsst"))
    doomed = torch.cat([at_the_cut[name][~mask] for name, mask in masks.items()]).abs()
    kept = torch.cat([at_the_cut[name][mask] for name, mask in masks.items()]).abs()
    assert doomed.numel() > 0
    assert float(doomed.max() / kept.median()) < 1e-3
    assert row_of(rsst, "rsst", 1).doomed_share == pytest.approx(float(doomed.max() / kept.median()), abs=1e-6)
    first = torch.cat([before.state_dict()[name][~mask] for name, mask in masks.items()]).abs()
    assert float(first.median()) > 1e-3, "they were something once"


# --- 2: the rewind point ---------------------------------------------------------------------------------------------


def test_the_rewind_point_is_the_same_after_every_round(refill: Experiment, imp: Experiment) -> None:
    for done, rounds in ((refill, ROUNDS), (imp, 3)):
        kept = RewindPoint.load(done.folder / "seed-0" / "rewind.safetensors")
        name = done.rows[-1].network
        assert [row_of(done, name, number).rewind_hash for number in range(1, rounds + 1)] == [kept.hash] * rounds
        assert kept.hash != RewindPoint.of(dense_model(done)).hash, "it is what the dense network began with"


def test_rounds_begin_with_the_weights_of_the_rewind_point(refill: Experiment, imp: Experiment) -> None:
    for number in range(1, ROUNDS + 1):
        whole = dense_model(refill)
        whole.load_state_dict(load_file(refill.folder / "seed-0" / "rewind.safetensors"))
        wanted = shrink(whole, units_after(refill, number, "refill")).state_dict()
        began = weights_in(place(refill, number, "refill") / "start")
        assert began.keys() == wanted.keys()
        assert all(torch.equal(began[name], wanted[name]) for name in wanted)
    for number in range(1, 4):
        kept = load_file(imp.folder / "seed-0" / "rewind.safetensors")
        masks = load_file(place(imp, number, "imp") / "masks.safetensors")
        began = weights_in(place(imp, number, "imp") / "start")
        for name, tensor in kept.items():
            assert torch.equal(began[name], tensor * masks[name] if name in masks else tensor)


@pytest.mark.parametrize("algorithm", [pytest.param("refill", marks=pytest.mark.slow), "imp", "rsst"])
def test_a_point_that_changes_on_the_way_ends_the_experiment(algorithm: str, tmp_path: Path) -> None:
    """Whoever writes into the kept weights in the middle of a round is found out at its end."""
    points: list[RewindPoint] = []
    load = RewindPoint.load

    def spoil() -> None:
        next(iter(points[0].weights.values())).add_(1e-3)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(RewindPoint, "load", lambda path: points.append(load(path)) or points[-1])
        with (
            before("vitscope.train.launch.train_step", 2 * STEPS_PER_EPOCH + 3, spoil),
            pytest.raises(VitscopeError, match="rewind point has changed"),
        ):
            experiment(tmp_path / "x", algorithm=algorithm)


def test_a_file_that_was_tampered_with_is_found_out(tmp_path: Path) -> None:
    done = experiment(tmp_path / "x", algorithm="oneshot")
    path = done.folder / "seed-0" / "rewind.safetensors"
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)
    with pytest.raises(VitscopeError, match="not the one that was saved"):
        experiment(tmp_path / "x", algorithm="oneshot", resume=True)


def test_another_point_in_its_place_is_found_out(tmp_path: Path) -> None:
    """Whole in itself, with a hash that is its own: it is not the one the rounds before went back to."""
    done = experiment(tmp_path / "x", algorithm="imp")
    path = done.folder / "seed-0" / "rewind.safetensors"
    RewindPoint({name: tensor + 1 for name, tensor in load_file(path).items()}).save(path)
    with pytest.raises(VitscopeError, match="another rewind point"):
        experiment(tmp_path / "x", algorithm="imp", rounds=2, resume=True)


# --- 3: density falls by the schedule --------------------------------------------------------------------------------


def test_of_single_weights_the_rate_goes_each_round(imp: Experiment) -> None:
    total = left = sum(mask.numel() for mask in all_kept(dense_model(imp)).values())
    gone_before: dict[str, torch.Tensor] = {}
    for number in range(1, 4):
        masks = load_file(place(imp, number, "imp") / "masks.safetensors")
        left -= int(Fraction("0.2") * left)
        assert sum(int(mask.sum()) for mask in masks.values()) == left
        assert left / total == pytest.approx(0.8**number, abs=number / total)
        assert row_of(imp, "imp", number).weights_removed == pytest.approx(1 - left / total, abs=1e-12)
        saved = weights_in(imp.folder / row_of(imp, "imp", number).model)
        zeros = sum(int((saved[name] == 0).sum()) for name in masks)
        assert zeros == total - left, "in the model that was saved, not in a mask beside it"
        assert all(not bool((masks[name] & ~mask).any()) for name, mask in gone_before.items()), "gone is gone"
        gone_before = masks


def test_the_smallest_trained_weights_go(imp: Experiment) -> None:
    masks = load_file(place(imp, 1, "imp") / "masks.safetensors")
    trained = dense_model(imp).state_dict()
    kept = torch.cat([trained[name][mask] for name, mask in masks.items()]).abs().min()
    gone = torch.cat([trained[name][~mask] for name, mask in masks.items()]).abs().max()
    assert gone <= kept


@pytest.mark.parametrize("rank", ["global", "layer"])
def test_of_units_as_many_are_gone_as_the_rate_says_of_the_original(
    rank: str, rsst: Experiment, tmp_path: Path
) -> None:
    done = rsst if rank == "global" else experiment(tmp_path / "x", rounds=ROUNDS, rank=rank, algorithm="oneshot")
    name = "rsst" if rank == "global" else "oneshot"
    previous: Units | None = None
    for number in range(1, ROUNDS + 1):
        units, row = units_after(done, number, name), row_of(done, name, number)
        share = 1 - (1 - Fraction("0.4")) ** number
        for kind, total in (("heads", HEADS), ("neurons", NEURONS)):
            if rank == "global":
                assert units.removed(kind) == int(total * share)
            else:
                assert [half - kept for half, kept in zip(units.totals(kind), units.counts(kind), strict=True)] == [
                    int(total // 2 * share)
                ] * 2
            assert getattr(row, f"{kind}_removed") == pytest.approx(units.removed(kind) / total)
            assert row.left(kind) == units.counts(kind)
        if name == "rsst" and previous is not None:
            units.require_within(previous)
        previous = units
        config: Any = vitscope.load_model(done.folder / row.model).config
        assert config.num_heads == units.counts("heads") or set(units.counts("heads")) == {config.num_heads}
        assert config.mlp_dim == units.counts("neurons") or set(units.counts("neurons")) == {config.mlp_dim}


@pytest.mark.parametrize("rank", ["global", "layer"])
@pytest.mark.parametrize("fillback", [0.0, 0.2, 1.0])
def test_a_mask_is_worth_what_refill_s_formula_says(rank: Any, fillback: float, refill: Experiment) -> None:
    """keep = round(d H + fillback (H - d H)), at least 1; globally all blocks are one group."""
    model, masks = dense_model(refill), load_file(place(refill, 1, "imp") / "masks.safetensors")
    found = gone_by_masks(groups_of(model), masks, fillback=fillback, rank=rank)
    for kind, names, each in (("heads", ("attn.qkv", "attn.proj"), 3), ("neurons", ("mlp.fc1", "mlp.fc2"), 20)):
        blocks = [[masks[f"blocks.{block}.{name}.weight"] for name in names] for block in (0, 1)]
        groups = blocks if rank == "layer" else [[*blocks[0], *blocks[1]]]
        count = each if rank == "layer" else 2 * each
        wanted = []
        for group in groups:
            share = Fraction(sum(int(m.sum()) for m in group), sum(m.numel() for m in group))
            keep = math.floor(share * count + Fraction(str(fillback)) * (count - share * count) + Fraction(1, 2))
            wanted.append(count - max(1, keep))
        assert found[kind] == (wanted if rank == "layer" else wanted[0])


def _gone(units: Units, kind: str) -> list[int]:
    return [total - kept for total, kept in zip(units.totals(kind), units.counts(kind), strict=True)]


def test_refill_keeps_what_its_masks_are_worth(refill: Experiment) -> None:
    """The default is as many in each block as its own mask says, and a fillback of 0.2; the mask of round k has lost k
    times the rate."""
    for number in range(1, ROUNDS + 1):
        units = units_after(refill, number, "refill")
        assert units.removed("heads") + units.removed("neurons") > 0
        if number == 1:
            masks = load_file(place(refill, 1, "imp") / "masks.safetensors")
            gone = gone_by_masks(groups_of(dense_model(refill)), masks, fillback=0.2, rank="layer")
            assert {kind: _gone(units, kind) for kind in units.kinds} == gone
    units_after(refill, 2, "refill").require_within(units_after(refill, 1, "refill"))


# --- 4: the small network says what the masked one says --------------------------------------------------------------


@pytest.mark.parametrize("name", ["rsst", "refill"])
def test_the_networks_rounds_make_say_what_masked_ones_say(name: str, request: pytest.FixtureRequest) -> None:
    """A trained small network, put back into the large one at the places of its units, with the rest at 0."""
    done = request.getfixturevalue(name)
    for number in range(1, ROUNDS + 1):
        units = units_after(done, number, name)
        small: Any = vitscope.load_model(done.folder / row_of(done, name, number).model).eval()
        large = dense_model(done).eval()
        with torch.no_grad():
            for parameter in large.parameters():
                parameter.normal_(generator=torch.Generator().manual_seed(1))
        _put_back(large, small, units)
        apply_masks(large, by_units(large, units))
        torch.testing.assert_close(small(pictures()), large(pictures()), atol=1e-5, rtol=0)
        assert bool((small(pictures()) != 0).any())


@torch.no_grad()
def _put_back(large: Any, small: Any, units: Units) -> None:
    """Written out, without the code that cut: rows and columns of kept units from the small network."""
    tensors, given = large.state_dict(), small.state_dict()
    for block in (0, 1):
        heads = torch.tensor(units.of("heads")[block]).repeat_interleave(8)
        neurons = torch.tensor(units.of("neurons")[block])
        at = f"blocks.{block}."
        tensors[f"{at}attn.qkv.weight"][heads.repeat(3)] = given[f"{at}attn.qkv.weight"]
        tensors[f"{at}attn.qkv.bias"][heads.repeat(3)] = given[f"{at}attn.qkv.bias"]
        tensors[f"{at}attn.proj.weight"][:, heads] = given[f"{at}attn.proj.weight"]
        tensors[f"{at}mlp.fc1.weight"][neurons] = given[f"{at}mlp.fc1.weight"]
        tensors[f"{at}mlp.fc1.bias"][neurons] = given[f"{at}mlp.fc1.bias"]
        tensors[f"{at}mlp.fc2.weight"][:, neurons] = given[f"{at}mlp.fc2.weight"]
    for name, tensor in given.items():
        if tensor.shape == tensors[name].shape:
            tensors[name].copy_(tensor)


# --- 5: the accuracy is the small network's, on pictures that decided nothing ----------------------------------------


def test_the_reported_accuracies_are_those_of_the_saved_network(done: Experiment) -> None:
    for row in done.rows:
        test, count = accuracy_by_hand(done.folder / row.model, settings(), "test")
        assert (row.test_accuracy, row.test_count) == (pytest.approx(test), count)
        val, _ = accuracy_by_hand(done.folder / row.model, settings(), "val")
        assert row.val_accuracy == pytest.approx(val)
    assert len({row.test_accuracy for row in done.rows}) > 1, "else any network's accuracy would do"


def test_the_test_pictures_choose_nothing(rsst: Experiment, refill: Experiment, imp: Experiment) -> None:
    parts = open_dataset(settings().data).splits
    assert not set(map(int, parts["test"])) & {*map(int, parts["val"]), *map(int, parts["train"])}
    for done in (rsst, refill, imp):
        for run in [path.parent for path in done.folder.rglob("metrics.jsonl")]:
            rows = metrics(run)
            tested = [row for row in rows if "test/accuracy" in row]
            assert len(tested) == (0 if run.parent.name == "growing" else 1), "once, when all is decided"
            if tested:
                assert rows.index(tested[0]) == len(rows) - 1
                best = [row for row in rows if row.get("best")][-1]
                assert best["val/accuracy"] == max(row["val/accuracy"] for row in rows if "val/accuracy" in row)


def test_other_test_pictures_would_change_no_network(tmp_path: Path, rsst: Experiment) -> None:
    """The labels of the test part are wrong: every accuracy on it changes, and not a weight of any network."""

    def mislabelled(data: Any) -> Any:
        dataset = open_dataset(data)
        dataset.source.labels = dataset.source.labels.copy()
        wrong = dataset.splits["test"]
        dataset.source.labels[wrong] = (dataset.source.labels[wrong] + 1) % 4
        return dataset

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("vitscope.train.resume.open_dataset", mislabelled)
        other = experiment(tmp_path / "x", rounds=1, reg=0.7)
    for network in ("dense", "rsst"):
        ours, theirs = row_of(rsst, network, 0 if network == "dense" else 1), row_of(other, network)
        assert ours.test_accuracy != theirs.test_accuracy
        assert (ours.val_accuracy, ours.heads_left, ours.neurons_left) == (
            theirs.val_accuracy,
            theirs.heads_left,
            theirs.neurons_left,
        )
        one, two = (weights_in(found.folder / row.model) for found, row in ((rsst, ours), (other, theirs)))
        assert all(torch.equal(one[name], two[name]) for name in one)


# --- 6: size and speed in the same row -------------------------------------------------------------------------------


def counted(config: ViTConfig) -> tuple[int, int]:
    """MACs and parameters by the formulas of the design, written out."""
    heads = config.num_heads if isinstance(config.num_heads, tuple) else (config.num_heads,) * 2
    widths = config.mlp_dim if isinstance(config.mlp_dim, tuple) else (config.mlp_dim,) * 2
    d, dh, n, c, p = 24, 8, 4, 4, 4
    t = n + 1
    macs, parameters = n * 1 * p * p * d + d * c, (p * p * d + d) + d + t * d + 2 * d + d * c + c
    for h, m in zip(heads, widths, strict=True):
        assert m is not None
        macs += 4 * t * d * dh * h + 2 * t * t * dh * h + 2 * t * d * m
        parameters += 4 * d + 4 * d * dh * h + 3 * dh * h + d + 2 * d * m + m + d
    return macs, parameters


def test_a_row_has_size_and_speed_of_its_network(rsst: Experiment, refill: Experiment, imp: Experiment) -> None:
    for done in (rsst, refill, imp):
        for row in done.rows:
            model: Any = vitscope.load_model(done.folder / row.model)
            assert (row.macs, row.params) == counted(model.config)
            assert row.params == sum(parameter.numel() for parameter in model.parameters())
    sizes = [row.params for row in rsst.rows]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == 3
    for row in rsst.rows:
        assert row.launch == "eager"
        gains = (row.speedup_batch1, row.speedup_batch256)
        if row.round == 0:
            assert gains == (None, None), "beside itself nothing is faster"
        for value in (row.latency_ms_batch1, row.latency_ms_batch256, *(gains if row.round else ())):
            assert value is not None
            assert 0 < value < 1e4
    assert len({row.params for row in imp.rows}) == 1, "a mask makes nothing smaller"


def test_the_share_of_weights_is_that_of_the_prunable_ones(rsst: Experiment) -> None:
    for number in range(1, ROUNDS + 1):
        units = units_after(rsst, number, "rsst")
        heads, neurons = sum(units.counts("heads")), sum(units.counts("neurons"))
        left = 4 * 24 * 8 * heads + 2 * 24 * neurons
        wanted = 1 - left / (4 * 24 * 8 * HEADS + 2 * 24 * NEURONS)
        assert row_of(rsst, "rsst", number).weights_removed == pytest.approx(wanted)


def test_single_weights_are_never_called_a_speed_up(tmp_path: Path) -> None:
    with timed_roughly():
        done = experiment(tmp_path / "x", algorithm="imp", timing="all")
    for row in done.rows:
        assert (row.launch, row.latency_ms_batch1, row.speedup_batch1, row.speedup_batch256) == (None,) * 4
    assert not (done.folder / "speed.json").exists()


def test_latency_is_taken_in_turns_with_the_dense_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Milliseconds and ratios come from the very numbers the clock gave: 3 ms of the dense one, 1.5 of the other."""
    asked: list[tuple[int, list[str]]] = []

    def run_row(row: Any, builds: dict[str, Any], images: torch.Tensor, *_: Any, **__: Any) -> Any:
        asked.append((len(images), sorted(builds)))
        sizes = {name: sum(p.numel() for p in build().parameters()) for name, build in builds.items()}
        seconds = {name: [0.003 if sizes[name] == sizes["dense"] else 0.0015] * 3 for name in builds}
        return type("Result", (), {"problems": {}, "seconds": seconds})

    monkeypatch.setattr(measure, "run_row", run_row)
    done = experiment(tmp_path / "x", algorithm="oneshot", timing="all")
    dense, small = row_of(done, "dense"), row_of(done, "oneshot")
    assert asked == [(1, ["dense", "small"]), (256, ["dense", "small"])] * 2
    assert (dense.latency_ms_batch256, small.latency_ms_batch256) == (pytest.approx(3.0), pytest.approx(1.5))
    assert (small.speedup_batch1, small.speedup_batch256) == (pytest.approx(2.0), pytest.approx(2.0))
    experiment(tmp_path / "x", algorithm="oneshot", timing="all", resume=True)
    assert len(asked) == 4, "what was timed is not timed again"


# --- 8: pictures as the network expects them -------------------------------------------------------------------------


def test_pictures_are_normalised_and_that_travels(tmp_path: Path) -> None:
    config = settings(data={"mean": (0.3,), "std": (0.2,)})
    done = experiment(tmp_path / "x", config, algorithm="rsst")
    for row in done.rows:
        model: Any = vitscope.load_model(done.folder / row.model)
        assert (model.preprocessing.mean, model.preprocessing.std) == ((0.3,), (0.2,))
        test, count = accuracy_by_hand(done.folder / row.model, config, "test")
        assert (row.test_accuracy, row.test_count) == (pytest.approx(test), count)


def test_position_tables_are_resampled(tmp_path: Path) -> None:
    """Weights of 8 x 8 pictures on 16 x 16 ones: the table is their own, resampled, and not a new one."""
    with quickly():
        first = fit(settings(), out=tmp_path / "first", quiet=True)
    larger = settings(
        ViTConfig(**{**vitscope.load_model(first.model_folder).config.__dict__, "img_size": 16}),
        data={"name": DATA.replace("size=8", "size=16")},
        checkpoint=CheckpointConfig(init_from=str(first.model_folder)),
    )
    done = experiment(tmp_path / "x", larger, algorithm="refill")
    kept = load_file(done.folder / "seed-0" / "rewind.safetensors")["pos_embed"]
    wanted: Any = vitscope.load_model(first.model_folder, img_size=16, say=False)
    assert kept.shape == (1, 17, 24)
    assert torch.equal(kept, wanted.pos_embed)
    began = weights_in(place(done, 1, "refill") / "start")["pos_embed"]
    assert torch.equal(began, kept)
    assert row_of(done, "refill").test_accuracy is not None


def test_every_network_is_trained_with_the_drop_rates_that_were_asked_for(tmp_path: Path) -> None:
    run = dense_run(tmp_path / "dense")
    asked = settings()
    asked = updated(asked, model=asked.model.changed(drop_path_rate=0.25))
    done = experiment(tmp_path / "sparse", asked, source=run, controls="all")
    rates = {
        str(path.relative_to(done.folder)): read_train_config(path).model.bare.drop_path_rate
        for path in done.folder.rglob("run/config.yaml")
    }
    assert len(rates) == 7, rates  # before the cut and after it, the same by lot, and three controls more
    assert set(rates.values()) == {0.25}, rates


def test_a_network_of_another_family_than_the_settings_name(tmp_path: Path) -> None:
    """From Python: the network that is given counts; the command line refuses what it would forget."""
    done = experiment(
        tmp_path / "x", settings(CONFIGS["cnn"]), source=dense_run(tmp_path / "dense"), algorithm="oneshot"
    )
    assert isinstance(vitscope.load_model(done.model).config, ViTConfig)


def test_rows_come_back_from_the_table(done: Experiment) -> None:
    assert read_rows(done.folder / "rounds.csv") == done.rows


def test_an_outcome_without_units_says_so(tmp_path: Path) -> None:
    outcome = Outcome(folder=tmp_path, model=tmp_path, epochs=1)
    with pytest.raises(VitscopeError, match="whole units"):
        outcome.kept_units  # noqa: B018


def test_units_of_the_saved_network_are_those_of_the_row(refill: Experiment) -> None:
    row = row_of(refill, "refill", ROUNDS)
    assert units_of(vitscope.load_model(refill.folder / row.model)).totals("neurons") == row.left("neurons")


# --- which pictures, and what a round leaves behind -------------------------------------------------------------------


def data_seed(run: Path) -> int | None:
    return read_train_config(run / "config.yaml").loop.data_seed


def test_who_goes_on_from_trained_weights_is_shown_pictures_as_never_before(rsst: Experiment) -> None:
    rounds = [place(rsst, number, "rsst") for number in range(1, ROUNDS + 1)]
    seeds = [data_seed(folder / "growing" / "run") for folder in rounds]
    assert seeds == [data_seed(folder / "small" / "run") for folder in rounds], "both runs of a round draw from one"
    assert data_seed((rsst.folder / row_of(rsst, "dense").model).parent) is None
    assert None not in seeds
    assert len(set(seeds)) == ROUNDS


def test_who_is_rewound_to_what_came_trained_goes_on_from_that(tmp_path: Path) -> None:
    run = dense_run(tmp_path / "run")
    done = experiment(tmp_path / "x", algorithm="imp", rate=0.2, source=run)
    assert data_seed((done.folder / row_of(done, "imp").model).parent) is not None


def test_a_seed_of_one_s_own_is_not_forgotten(tmp_path: Path) -> None:
    config = settings(loop={"data_seed": 7})
    assert (
        data_seed(
            (tmp_path / "imp" / row_of(experiment(tmp_path / "imp", config, algorithm="imp"), "imp").model).parent
        )
        == 7
    )
    seeds = []
    for asked in (config, settings()):
        done = experiment(tmp_path / f"x{len(seeds)}", asked, algorithm="oneshot")
        assert data_seed((done.folder / row_of(done, "dense").model).parent) == asked.loop.data_seed
        seeds.append(data_seed((done.folder / row_of(done, "oneshot").model).parent))
    assert None not in seeds
    assert len({*seeds}) == 2


def test_who_is_rewound_trains_on_the_same_pictures_again(refill: Experiment, imp: Experiment) -> None:
    for done, name in ((refill, "refill"), (imp, "imp")):
        for number in range(1, ROUNDS + 1):
            assert data_seed((done.folder / row_of(done, name, number).model).parent) is None


def test_a_round_that_is_done_lets_go_of_what_its_cut_was_made_from(tmp_path: Path) -> None:
    """And is gone on from all the same."""
    done = experiment(tmp_path / "x", keeps_cuts=False)
    folder = place(done, 1, "rsst")
    left = {path.name for path in (folder / "growing" / "run").iterdir()}
    assert {"config.yaml", "metrics.jsonl"} <= left
    assert "checkpoints" not in left
    assert (folder / "small" / "run" / "checkpoints" / "last").exists()
    more = experiment(tmp_path / "x", rounds=2, resume=True, keeps_cuts=False)
    whole = experiment(tmp_path / "whole", rounds=2)
    assert [row.test_accuracy for row in more.rows] == [row.test_accuracy for row in whole.rows]
    last = [weights_in(one.folder / one.rows[-1].model) for one in (more, whole)]
    assert differing(*last) == set()


def test_speeds_of_another_machine_are_not_taken_for_this_one_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    speed, timed = measure.Speed(1.0, 2.0, 1.1, 1.2, 1.1, 2.4), list[str]()

    def time_it(*given: Any) -> measure.Timing:
        timed.append("once more")
        return measure.Timing("eager", speed, None)

    monkeypatch.setattr(measure.Stopwatch, "_timed", time_it)
    for hardware, version, times in (("one", "2.11", 1), ("one", "2.11", 1), ("two", "2.11", 2), ("two", "2.13", 3)):
        monkeypatch.setattr(measure, "surroundings", lambda device, here=hardware: {"hardware": here})
        monkeypatch.setattr(torch, "__version__", version)
        measure.Stopwatch(tmp_path / "speed.json", torch.device("cpu")).time(VIT, VIT)
        assert len(timed) == times
