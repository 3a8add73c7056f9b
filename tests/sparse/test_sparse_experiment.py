"""An experiment as a whole: seeds, what it begins with, its folder, its report, and what is refused."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import vitscope
from sparse.tiny_experiments import (
    STEPS_PER_EPOCH,
    KilledError,
    before,
    dense_run,
    experiment,
    kill,
    logged,
    row_of,
    settings,
    weights_in,
)
from train.tiny_runs import differing
from vitscope.core.errors import ConfigError, DataError, UsageError
from vitscope.core.folder_lock import FolderLock
from vitscope.core.run_layout import REPLACED
from vitscope.core.yaml import load_yaml
from vitscope.sparse.config import SparseConfig
from vitscope.sparse.rewind import RewindPoint
from vitscope.train.config import TrainConfig


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> str:
    return dense_run(tmp_path_factory.mktemp("dense") / "run-0")


# --- what is worth a word ---------------------------------------------------------------------------------------------


def test_a_dense_network_that_guesses_is_told(tmp_path: Path, dense: str, caplog: pytest.LogCaptureFixture) -> None:
    words = "hardly more than guessing (25.0 %)"
    experiment(tmp_path / "x", source=dense, algorithm="oneshot")
    assert words not in caplog.text
    guesses = dense_run(tmp_path / "guesses", settings(optim={"lr": 1e-6}))
    experiment(tmp_path / "y", source=guesses, algorithm="oneshot")
    assert words in caplog.text


def test_units_that_cannot_go_are_told(tmp_path: Path, dense: str) -> None:
    """Of 6 heads in two blocks 5 were to go."""
    for more, stay in (({}, True), ({"allow_empty": True}, False)):
        said: list[str] = []
        experiment(tmp_path / f"x-{stay}", source=dense, algorithm="rsst", rate=0.9, say=said.append, **more)
        told = any(
            "1 more heads were to go, but some stay in every block: --least-neurons, --allow-empty" in x for x in said
        )
        assert told is stay
    said = []
    experiment(tmp_path / "rounded", source=dense, algorithm="oneshot", round_to=8, say=said.append)
    assert not any("were to go" in text for text in said), "what is rounded was asked for"
    with pytest.raises(ConfigError, match=r"least_neurons.*fewer than a block has neurons \(20\)"):
        experiment(tmp_path / "y", source=dense, least_neurons=20)


# --- what it begins with ---------------------------------------------------------------------------------------------


def test_a_given_network_is_copied_and_rewound_to(dense: str, tmp_path: Path) -> None:
    done = experiment(tmp_path / "x", source=dense, algorithm="imp")
    given = weights_in(Path(dense) / "model")
    assert differing(weights_in(done.folder / row_of(done, "dense").model), given) == set()
    kept = RewindPoint.load(done.folder / "seed-0" / "rewind.safetensors")
    assert differing(kept.weights, given) == set()
    assert row_of(done, "imp").rewind_hash == kept.hash
    assert row_of(done, "dense").epochs == 0


def test_rounds_rewind_to_an_epoch_of_the_dense_training(tmp_path: Path) -> None:
    done = experiment(tmp_path / "x", algorithm="imp", rewind=1)
    kept = load_file(done.folder / "seed-0" / "rewind.safetensors")
    run = done.folder / "seed-0" / "dense" / "run" / "checkpoints" / f"step-{STEPS_PER_EPOCH:06d}"
    assert differing(kept, load_file(run / "model.safetensors")) == set()
    first = experiment(tmp_path / "first", algorithm="oneshot")
    began = load_file(first.folder / "seed-0" / "rewind.safetensors")
    assert differing(kept, began), "not what it began with"


def test_each_seed_has_its_own(tmp_path: Path, dense: str) -> None:
    other = dense_run(Path(dense).with_name("run-1"), settings(loop={"epochs": 2, "seed": 1}))
    done = experiment(tmp_path / "x", source=str(Path(dense).with_name("run-{seed}")), algorithm="oneshot", seeds=2)
    for seed, run in enumerate((dense, other)):
        row = row_of(done, "dense", seed=seed)
        assert differing(weights_in(done.folder / row.model), weights_in(Path(run) / "model")) == set()
        config: Any = json.loads(json.dumps(vars(row_of(done, "oneshot", seed=seed))))
        assert config["seed"] == seed
    first, second = (weights_in(done.folder / row_of(done, "oneshot", seed=seed).model) for seed in (0, 1))
    assert first["head.weight"].shape == second["head.weight"].shape
    assert not torch.equal(first["head.weight"], second["head.weight"])


def test_the_dense_network_teaches_rounds_and_controls_where_it_shall(tmp_path: Path) -> None:
    """Each seed's own, and never itself while it is trained; all of it begins with the very same weights."""
    taught = experiment(tmp_path / "x", rate=0.4, dense_teaches=0.75, controls="oneshot", rounds=2, seeds=2)
    alone = experiment(tmp_path / "y", rate=0.4, controls="oneshot", rounds=2, seeds=2)
    for seed in (0, 1):
        place = taught.folder / f"seed-{seed}"
        configs = {path.parent: load_yaml(TrainConfig, path) for path in place.rglob("run/config.yaml")}
        names = {str(run.relative_to(place)) for run in configs}
        assert {
            "dense/run",
            "round-2/rsst/growing/run",
            "round-2/rsst/small/run",
            "round-1/control-oneshot/run",
        } <= names
        own = taught.folder / row_of(taught, "dense", seed=seed).model
        for run, config in configs.items():
            if run == place / "dense" / "run":
                assert config.loss.teacher is None
            else:
                assert Path(config.loss.teacher or "").samefile(own)
                assert config.loss.distill_share == 0.75
        step = STEPS_PER_EPOCH
        with_teacher, without = (
            logged(done.folder / f"seed-{seed}/round-1/rsst/growing/run", "train/loss")[step]
            for done in (taught, alone)
        )
        assert with_teacher != without
        assert differing(weights_in(own), weights_in(alone.folder / row_of(alone, "dense", seed=seed).model)) == set()


def test_networks_have_one_teacher(tmp_path: Path) -> None:
    config = settings(loss={"teacher": str(tmp_path)})
    with pytest.raises(ConfigError, match="dense_teaches: expected 0 beside"):
        experiment(tmp_path / "x", config, dense_teaches=0.5)
    assert not (tmp_path / "x").exists()


def test_seeds_without_networks_of_their_own_are_warned_of(
    tmp_path: Path, dense: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="vitscope"):
        done = experiment(tmp_path / "x", source=dense, algorithm="oneshot")
        assert "begin with the one network" not in caplog.text
        done = experiment(tmp_path / "x", source=dense, algorithm="oneshot", seeds=2, resume=True)
    assert "begin with the one network" in caplog.text
    assert [row.seed for row in done.rows] == [0, 0, 1, 1]


def test_only_the_first_seed_is_timed_where_that_is_asked_for(
    tmp_path: Path, dense: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vitscope.sparse import measure

    monkeypatch.setattr(measure, "ROUNDS", 2)
    monkeypatch.setattr(measure, "LEAST_SECONDS", 1e-3)
    done = experiment(tmp_path / "x", source=dense, algorithm="oneshot", seeds=2, timing="first")
    assert [row.seed for row in done.rows if row.latency_ms_batch1 is not None] == [0, 0]


# --- the folder ------------------------------------------------------------------------------------------------------


def test_it_says_how_far_it_is(tmp_path: Path, dense: str) -> None:
    said: list[str] = []
    experiment(tmp_path / "x", source=dense, algorithm="oneshot", controls="dense", rounds=2, say=said.append)
    told = [line for line in said if line.startswith("network ")]
    assert [line.split(",")[0] for line in told] == [f"network {number} of 5 is done" for number in range(1, 6)]
    assert [", about " in line for line in told] == [False, True, True, True, False]


def test_the_report_is_there(tmp_path: Path, dense: str) -> None:
    done = experiment(
        tmp_path / "x", source=dense, algorithm="oneshot", controls="random", report=True, title="a title of its own"
    )
    for name in ("rounds.csv", "report.html", "plots/accuracy_and_speed.png", "plots/what_is_left.png"):
        assert (done.folder / name).stat().st_size > 0, name
    page = (done.folder / "report.html").read_text()
    assert "a title of its own" in page
    assert "cannot tell" in page, "one seed has no verdict"
    assert done.table == done.folder / "rounds.csv"


def test_what_was_done_is_what_stands_in_the_table(tmp_path: Path, dense: str) -> None:
    """Rows stay where a later call asks for less: the page must not say that there were none."""
    asked: dict[str, Any] = {"source": dense, "algorithm": "oneshot", "report": True}

    def shown(done: Any) -> dict[str, str]:
        return dict(re.findall(r"<dt>(\w+)</dt><dd>([^<]*)</dd>", (done.folder / "report.html").read_text()))

    first = shown(experiment(tmp_path / "x", controls="random,dense", **asked))
    assert (first["controls"], first["control_rounds"]) == ("dense, random", "1")
    later = shown(experiment(tmp_path / "x", controls="none", resume=True, **asked))
    assert later == first
    alone = shown(experiment(tmp_path / "y", controls="none", **asked))
    assert (alone["controls"], alone["control_rounds"]) == ("none", "none")


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"rate": 0.5}, "rate (0.4 -> 0.5)"),
        ({"criterion": "l2"}, "criterion (saliency -> l2)"),
        ({"epochs": 3}, "epochs (None -> 3)"),
        ({"config": settings(optim={"lr": 0.02})}, "optim.lr (0.01 -> 0.02)"),
        ({"rounds": 1}, "rounds (2 -> 1)"),
        ({"source": "/tmp/another"}, "what it begins with"),
    ],
)
def test_other_settings_are_refused_by_name(changed: dict[str, Any], named: str, tmp_path: Path, dense: str) -> None:
    """Before anything is touched. The experiment was killed before its first round: nothing need be there."""
    given: dict[str, Any] = {"source": dense, "algorithm": "oneshot", "rounds": 2}
    with before("vitscope.sparse.sparsify.begin_trial", 1, kill), pytest.raises(KilledError):
        experiment(tmp_path / "x", **given)
    kept = {path: path.read_bytes() for path in (tmp_path / "x").iterdir()}
    with pytest.raises(ConfigError) as refused:
        experiment(tmp_path / "x", **{**given, **changed}, resume=True)
    assert named in refused.value.what
    assert {path: path.read_bytes() for path in (tmp_path / "x").iterdir()} == kept


def test_the_same_network_may_be_named_otherwise(tmp_path: Path, dense: str, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment(tmp_path / "x", source=dense, algorithm="oneshot")
    monkeypatch.chdir(Path(dense).parent)
    done = experiment(
        tmp_path / "x", settings(loop={"epochs": 2, "device": "auto"}), source="run-0", algorithm="oneshot", resume=True
    )
    assert done.state == "finished"


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path, dense: str) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    for resume, words in ((False, "is not empty"), (True, "holds no experiment")):
        with pytest.raises(UsageError, match=words):
            experiment(tmp_path, source=dense, resume=resume)
    with pytest.raises(UsageError, match="is not a folder"):
        experiment(tmp_path / "notes.txt", source=dense)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_an_experiment_can_be_replaced_and_nothing_else(tmp_path: Path, dense: str) -> None:
    first = experiment(tmp_path / "x", source=dense, algorithm="oneshot", seeds=2)
    assert (tmp_path / "x" / "seed-1").is_dir()
    again = experiment(tmp_path / "x", source=dense, algorithm="oneshot", rate=0.6, overwrite=True)
    assert not (tmp_path / "x" / "seed-1").exists()
    assert {row.seed for row in again.rows} == {0}
    assert again.rows[-1].neurons_removed > first.rows[-1].neurons_removed
    inside = str(again.run)
    taught = settings(loss={"teacher": f"{inside}/model"})
    for given in ({"source": inside}, {"source": dense, "config": taught}):
        with pytest.raises(UsageError, match="is in what would be replaced"):
            experiment(tmp_path / "x", **given, overwrite=True)
    assert Path(inside).is_dir()
    with pytest.raises(ConfigError, match="no --overwrite beside it"):
        experiment(tmp_path / "x", source=dense, resume=True, overwrite=True)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "train.yaml").write_text("mine")
    with pytest.raises(UsageError, match="holds no experiment, and is not replaced"):
        experiment(tmp_path / "mine", source=dense, overwrite=True)
    assert (tmp_path / "mine" / "train.yaml").read_text() == "mine"


@pytest.mark.parametrize("ending", [RuntimeError("no more"), KilledError()], ids=["fails", "killed"])
def test_what_is_replaced_goes_once_there_is_a_network(tmp_path: Path, dense: str, ending: BaseException) -> None:
    """Until then it comes back; from a kill with the next try."""
    old = experiment(tmp_path / "x", source=dense, algorithm="oneshot")
    table = old.table.read_bytes()

    def end() -> None:
        raise ending

    with before("vitscope.sparse.sparsify.begin_trial", 1, end), pytest.raises(type(ending)):
        experiment(tmp_path / "x", source=dense, algorithm="oneshot", rate=0.6, overwrite=True)
    kept = tmp_path / "x" if isinstance(ending, RuntimeError) else tmp_path / "x" / REPLACED
    assert (kept / "rounds.csv").read_bytes() == table
    again = experiment(tmp_path / "x", source=dense, algorithm="oneshot", rate=0.6, overwrite=True)
    assert again.table.read_bytes() != table
    assert not (tmp_path / "x" / REPLACED).exists()


def test_data_that_cannot_be_used_leave_no_folder(tmp_path: Path) -> None:
    """The corrected command shall find none."""
    (tmp_path / "empty").mkdir()
    for name, error in (("nowhere", UsageError), ("empty", DataError)):
        with pytest.raises(error):
            experiment(tmp_path / "x", settings(data={"name": str(tmp_path / name)}))
    assert not (tmp_path / "x").exists()


def test_killed_while_the_folder_was_made(tmp_path: Path, dense: str) -> None:
    for call in (1, 2):
        with before("vitscope.sparse.experiment_folder.save_yaml", call, kill), pytest.raises(KilledError):
            experiment(tmp_path / "x", source=dense, algorithm="oneshot", resume=call > 1)
    assert experiment(tmp_path / "x", source=dense, algorithm="oneshot", resume=True).state == "finished"


def test_one_process_at_a_time(tmp_path: Path, dense: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def taken(lock: FolderLock, folder: Path) -> None:
        raise UsageError(f"another process is writing to '{folder}'")

    monkeypatch.setattr(FolderLock, "take", taken)
    with pytest.raises(UsageError, match="another process"):
        experiment(tmp_path / "x", source=dense)


# --- settings that do not go together --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"algorithm": "imp", "rewind": 3}, "which has 2"),
        ({"algorithm": "imp", "rewind": 1, "source": "somewhere"}, "rounds go back to it"),
        ({"epochs": 1}, "two epochs"),
        ({"units": "channels"}, "which this network has"),
    ],
)
def test_what_cannot_be_done_leaves_no_folder(given: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=words):
        experiment(tmp_path / "x", **given)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    "given",
    [
        {"rate": 0.0},
        {"rate": 1.0},
        {"rounds": 0},
        {"seeds": 0},
        {"fillback": 1.1},
        {"dense_teaches": -0.1},
        {"growth_share": 1.0},
        {"reg": 0.0},
        {"exp": float("inf")},
        {"score_batches": 9},
        {"units": "head"},
        {"units": ""},
        {"controls": "dense,randm"},
        {"criterion": "remain"},
        {"rewind": 1},
        {"epochs": 0},
        {"least_neurons": 0},
        {"round_to": 0},
    ],
)
def test_settings_without_meaning_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(given))):
        SparseConfig(**given)


def test_lists_of_words() -> None:
    found = SparseConfig(units=" neurons, heads ,heads", controls="oneshot,dense")
    assert found.kinds == ("neurons", "heads")
    assert found.held_against == ("dense", "oneshot")
    assert SparseConfig(controls="all").held_against == ("dense", "random", "reinit", "oneshot")
    assert SparseConfig().held_against == ()


def test_the_preprocessing_of_a_run_travels(tmp_path: Path) -> None:
    config = settings(data={"mean": (0.25,), "std": (0.5,)})
    source = dense_run(tmp_path / "run", config)
    done = experiment(tmp_path / "x", config, source=source, algorithm="oneshot")
    for row in done.rows:
        model: Any = vitscope.load_model(done.folder / row.model)
        assert (model.preprocessing.mean, model.preprocessing.std) == ((0.25,), (0.5,))
