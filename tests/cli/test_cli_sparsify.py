"""`vitscope sparsify`: from typed words to an experiment, what is printed, what is refused; and its old launcher."""

from __future__ import annotations

import json
import os
import shlex
import signal
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PIL import Image

import vitscope
from sparse.tiny_experiments import before, dense_run, experiment, quickly, settings
from vitscope.cli.main import main
from vitscope.core.environment import host_name
from vitscope.core.yaml import load_yaml, save_yaml
from vitscope.sparse import sparsify as experiments
from vitscope.sparse.config import SparseConfig
from vitscope.train.config import TrainConfig
from vitscope.train.signals import StopFlag

TINY = ("--score-batches", "10", "--timing", "none", "--rate", "0.4")
LAUNCHER = Path(__file__).parents[2] / "scripts" / "launch_experiment.sh"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    save_yaml(settings(), tmp_path / "mini.yaml")
    with quickly():
        yield tmp_path


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[SimpleNamespace]:
    """What `sparsify` is called with, instead of it."""
    calls: list[SimpleNamespace] = []

    def note(config: TrainConfig, sparse: SparseConfig, **given: Any) -> Any:
        calls.append(SimpleNamespace(config=config, sparse=sparse, **given))
        return experiments.Experiment(Path(given["out"]), "finished", 0, [])

    monkeypatch.setattr(experiments, "sparsify", note)
    return calls


def refused(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    assert main(["sparsify", *args]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in err
    return err


def run_here(name: str, **loop: Any) -> str:
    return dense_run(Path(name), settings(loop={"epochs": 2, **loop}))


# --- from words to an experiment -------------------------------------------------------------------------------------


def test_words_become_settings(asked: list[SimpleNamespace], here: Path) -> None:
    words = (
        "mini.yaml --algorithm refill --rate 0.3 --rounds 5 --reg 2.0 --exp 3 --fillback 0.1 --units heads,neurons "
        "--criterion l2 --rank layer --controls all --seeds 3 --epochs 7 --dense-epochs 9 --optim.lr 0.5 --json"
    )
    assert main(["sparsify", *words.split()]) == 0
    (call,) = asked
    assert call.sparse == SparseConfig(
        algorithm="refill",
        rate=0.3,
        rounds=5,
        reg=2.0,
        exp=3.0,
        fillback=0.1,
        units="heads,neurons",
        criterion="l2",
        rank="layer",
        controls="all",
        seeds=3,
        epochs=7,
        dense_epochs=9,
    )
    assert (call.config.optim.lr, call.config.loop.epochs) == (0.5, 2), "--epochs is of a round"
    assert (call.source, call.resume) == (None, False)
    assert Path(call.out) == Path("runs/sparse-mini-001")


def test_the_defaults_are_one_round_of_one_seed_without_controls(asked: list[SimpleNamespace]) -> None:
    assert main(["sparsify", "mini.yaml", "--json"]) == 0
    sparse = asked[0].sparse
    assert (sparse.algorithm, sparse.rounds, sparse.seeds, sparse.controls) == ("rsst", 1, 1, "none")
    assert (sparse.reg, sparse.exp, sparse.fillback, sparse.rate) == (1.0, 4.0, 0.2, 0.2)


def test_a_run_is_what_rounds_begin_with(asked: list[SimpleNamespace], monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_here("run-3", seed=3)
    monkeypatch.setenv("HOME", str(Path.cwd()))
    assert main(["sparsify", "~/run-3", "--json"]) == 0
    assert asked[0].source == str(Path(run).absolute())
    assert asked[0].config.loop.seed == 3


def test_of_a_runs_model_drop_rates_are_set_anew_and_layers_are_refused(
    asked: list[SimpleNamespace], capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_here("dense")
    assert main(["sparsify", run, "--model.drop-path-rate", "0.3", "--json"]) == 0
    assert asked[0].config.model.drop_path_rate == 0.3
    capsys.readouterr()
    for words in (["--model.depth", "7"], ["--model", "vit_tiny"], ["--model", "resnet18"]):
        told = refused(capsys, run, *words)
        assert "expected" in told, told
        assert "only drop rates" in told, told
    assert "expected 'vit', as 'dense' has it, received 'resnet'" in told
    assert len(asked) == 1


def test_pictures_and_their_means_are_refused_as_before_training(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "photos" / "cat").mkdir(parents=True)
    Image.new("RGB", (8, 8)).save(here / "photos" / "cat" / "1.png")
    assert "the folder of pictures 'photos'" in refused(capsys, "photos")
    told = refused(capsys, "mini.yaml", "--data.mean", "125", "--data.std", "51")
    assert "`--data.mean 0.49 --data.std 0.2`" in told


def test_a_run_that_has_not_ended_is_told(
    asked: list[SimpleNamespace], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Path(run_here("dense"))
    status = json.loads((run / "status.json").read_text())
    at_work = {**status, "state": "running", "pid": os.getpid(), "host": host_name(), "heartbeat": time.time()}
    (run / "status.json").write_text(json.dumps(at_work))
    assert f"one at work (process {os.getpid()})" in refused(capsys, str(run))
    assert not asked
    for state, word in (("running", "killed"), ("stopped", "stopped")):
        (run / "status.json").write_text(json.dumps({**status, "state": state, "heartbeat": 0.0}))
        assert main(["sparsify", str(run), "--json"]) == 0
        told = capsys.readouterr().err
        assert f"did not train to its end ({word})" in told
        assert f"`vitscope train --resume --out {run}` goes on with it" in told
    (run / "status.json").write_text(json.dumps(status))
    assert main(["sparsify", str(run), "--json"]) == 0
    assert "to its end" not in capsys.readouterr().err


def test_what_is_named_instead_of_a_run(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_here("dense")
    assert f"`vitscope sparsify {run}`" in refused(capsys, f"{run}/model")
    assert "there is no 'dense-0', which 'dense-{seed}' stands for" in refused(capsys, "dense-{seed}", "--seeds", "2")
    assert "name its folder with --out" in refused(capsys, "--resume")
    small = experiment(here / "small", source=run)
    place = small.run.relative_to(here)
    for verb, end in (("doctor", ""), ("train", "/config.yaml")):
        assert main([verb, "small"]) == 2
        told = capsys.readouterr().err
        assert "received the sparse experiment 'small', which holds many runs" in told
        assert f"`vitscope {verb} {place}{end}`" in told
    assert main(["doctor", "."]) == 2
    assert "name one of the runs in it: dense" in capsys.readouterr().err


def test_a_taught_network_does_not_bring_its_teacher(asked: list[SimpleNamespace], here: Path) -> None:
    """It was the dense network of that experiment and seed. A run that has a teacher of its own keeps it."""
    taught = settings(loss={"teacher": "x/seed-0/dense/model", "distill_share": 0.5})
    for run in ("x/seed-0/round-1/rsst/small/run", "alone"):
        run_here(run)
        save_yaml(taught, here / run / "config.yaml")
    (here / "x" / "sparse.yaml").write_text("")
    assert main(["sparsify", "x/seed-0/round-1/rsst/small/run", "--out", "y", "--json"]) == 0
    assert main(["sparsify", "alone", "--out", "z", "--json"]) == 0
    assert [call.config.loss.teacher for call in asked] == [None, "x/seed-0/dense/model"]


def test_each_seed_names_its_run(asked: list[SimpleNamespace], capsys: pytest.CaptureFixture[str]) -> None:
    run_here("run-0")
    assert main(["sparsify", "run-{seed}", "--json"]) == 0
    assert asked[0].source == "run-{seed}"
    capsys.readouterr()
    assert "'run-1'" in refused(capsys, "run-{seed}", "--seeds", "2")


def test_a_model_without_published_weights_begins_with_new_ones(
    asked: list[SimpleNamespace], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sparsify", "--data", "digits", "--model", "vit_tiny", "--pretrained", "--json"]) == 0
    assert asked[0].config.checkpoint.init_from is None
    assert asked[0].config.model.name == "vit_tiny"
    err = capsys.readouterr().err
    assert "warning: no weights are published for 'vit_tiny'" in err


def test_weights_are_taken_to_another_picture_size(asked: list[SimpleNamespace]) -> None:
    run = run_here("run")
    words = ["--from", run, "--data", "synthetic:size=16,count=120,classes=4,channels=1", "--model.img-size", "16"]
    assert main(["sparsify", *words, "--json"]) == 0
    assert asked[0].config.model.bare.img_size == 16
    assert asked[0].config.checkpoint.init_from is not None
    assert asked[0].source is None


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("mini.yaml --algorithm rst", "did you mean 'rsst'?"),
        ("mini.yaml --units head", "did you mean 'heads'?"),
        ("mini.yaml --controls densee", "did you mean 'dense'?"),
        ("mini.yaml --criterion salience", "did you mean 'saliency'?"),
        ("mini.yaml --fillbck 0.2", "did you mean '--fillback'?"),
        ("mini.yaml --optim.lrr 3", "did you mean '--optim.lr'?"),
        ("digits_vitt", "did you mean 'digits_vit'?"),
        ("--resume --out nowhere", "'nowhere': expected the folder of a sparse experiment, received nothing"),
        ("--resume --out .", "'.': expected the folder of a sparse experiment, received something else"),
        ("mini.yaml --rate 1.5", "expected a share above 0 and below 1, received 1.5"),
        ("mini.yaml --rate 40", "to do: 40 %: --rate 0.4"),
        ("mini.yaml --epochs 1 --out x", "two epochs or more"),
        ("mini.yaml --resume", "name its folder with --out"),
        ("--rate 0.2", "--data"),
        ("--data digits --model vit_tiny --pretrained --from x", "leave one out"),
    ],
)
def test_what_is_mistyped_is_refused(words: str, told: str, capsys: pytest.CaptureFixture[str], here: Path) -> None:
    assert told in refused(capsys, *words.split())
    assert sorted(path.name for path in here.iterdir()) == ["mini.yaml"], "nothing was begun"


def test_a_folder_that_is_taken_and_settings_that_changed(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["mini.yaml", "--algorithm", "oneshot", *TINY, "--out", "x"]
    assert main(["sparsify", *words]) == 0
    capsys.readouterr()
    assert "is not empty" in refused(capsys, *words)
    assert "rank (global -> layer)" in refused(capsys, *words, "--resume", "--rank", "layer")
    assert "optim.lr (0.01 -> 0.5)" in refused(capsys, *words, "--resume", "--optim.lr", "0.5")
    assert main(["sparsify", *words, "--resume", "--rounds", "2"]) == 0
    capsys.readouterr()
    assert main(["sparsify", *words, "--overwrite", "--rank", "layer", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {row["round"] for row in told["rows"]} == {0, 1}
    assert [(one["against"], one["word"]) for one in told["verdicts"]] == [("dense", "cannot tell")]


# --- what is printed -------------------------------------------------------------------------------------------------


def test_what_it_made_is_named_and_more_rounds_need_no_other_word(capsys: pytest.CaptureFixture[str]) -> None:
    begun = ["sparsify", "mini.yaml", "--algorithm", "oneshot", "--epochs", "1", "--dense-epochs", "1", *TINY]
    assert main([*begun, "--out", "small"]) == 0
    told = capsys.readouterr().out
    assert "model small/model/, table small/rounds.csv, page small/report.html" in told
    assert told.rstrip().endswith("next: vitscope eval small/seed-0/round-1/oneshot/run")
    weights = Path("small/model/model.safetensors").read_bytes()
    assert weights == Path("small/seed-0/round-1/oneshot/run/model/model.safetensors").read_bytes()
    assert main(["sparsify", "--resume", "--out", "small", "--rounds", "2"]) == 0
    assert "next: vitscope eval small/seed-0/round-2/oneshot/run" in capsys.readouterr().out
    kept = load_yaml(SparseConfig, Path("small/sparse.yaml"))
    assert (kept.algorithm, kept.epochs, kept.rate, kept.rounds) == ("oneshot", 1, 0.4, 2)
    assert Path("small/model/model.safetensors").read_bytes() != weights
    assert "optim.lr" in refused(capsys, "--resume", "--out", "small", "--rounds", "2", "--lr", "0.5")
    assert "is a sparse experiment" in refused(capsys, "small")
    assert main(["train", "--resume", "--out", "small"]) == 2, "an experiment is no run"
    assert "not a run folder" in capsys.readouterr().err


def test_rows_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sparsify", "mini.yaml", "--algorithm", "oneshot", *TINY, "--out", "x", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["state"], told["folder"]) == ("finished", "x")
    assert [row["network"] for row in told["rows"]] == ["dense", "oneshot"]
    assert told["rows"][1]["params"] < told["rows"][0]["params"]
    kept = load_yaml(SparseConfig, Path("x/sparse.yaml"))
    assert (kept.algorithm, kept.rate) == ("oneshot", 0.4)


def test_stopped_it_says_how_to_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    """And that line, typed as it stands, does: a name with a blank in it, --resume given already."""
    words = ["mini.yaml", "--algorithm", "oneshot", *TINY, "--out", "a place"]
    flags: list[StopFlag] = []
    enter = StopFlag.__enter__
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(StopFlag, "__enter__", lambda flag: flags.append(flag) or enter(flag))
        for again in ([], ["--resume"]):
            with before("vitscope.train.launch.train_step", 2, lambda: flags[-1].raise_flag(signal.SIGTERM)):
                assert main(["sparsify", *words, *again]) == 143
            (line,) = (row for row in capsys.readouterr().out.splitlines() if row.startswith("next: "))
    typed = shlex.split(line.removeprefix("next: "))
    assert typed == ["vitscope", "sparsify", *words, "--resume"]
    assert main(typed[1:]) == 0
    assert "oneshot" in capsys.readouterr().out


# --- the ten-argument launcher ---------------------------------------------------------------------------------------


@pytest.fixture
def launch(here: Path) -> Any:
    """The script with a stand-in for vitscope that prints its arguments, a line each."""
    stub = here / "stub"
    stub.write_text('#!/bin/sh\nfor word in "$@"; do echo "arg $word"; done\nexit ${STUB_CODE:-0}\n')
    stub.chmod(stub.stat().st_mode | stat.S_IXUSR)

    def run(*args: str, answer: str = "", **more: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "VITSCOPE": str(stub), **more}
        return subprocess.run(
            ["bash", str(LAUNCHER), *args], cwd=here, env=env, input=answer, capture_output=True, text=True, check=False
        )

    return run


def arguments(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line.removeprefix("arg ") for line in done.stdout.splitlines() if line.startswith("arg ")]


def test_launched_without_words_it_shows_the_old_defaults_and_asks(launch: Any, here: Path) -> None:
    for answer in ("", "n\n", "\n"):
        done = launch(answer=answer)
        assert done.returncode == 0
        assert arguments(done) == []
        assert "not begun" in done.stdout
    told = dict(line.split(maxsplit=1) for line in done.stdout.splitlines()[:9])
    assert told == {
        "dataset": "cifar10",
        "model": "vit_tiny",
        "epochs": "80",
        "reg": "1.0",
        "exp": "4",
        "pretrained": "true",
        "rate": "0.2",
        "algorithm": "rsst",
        "fillback": "0.2",
    }
    assert not (here / "launch_logs").exists()


def flags_of(words: list[str]) -> dict[str, str]:
    return {word: words[place + 1] for place, word in enumerate(words[:-1]) if word.startswith("--")}


def test_launched_it_maps_its_words_onto_sparsify(launch: Any, here: Path) -> None:
    done = launch("a folder", "vit_small", "5", "2.0", "3", "false", "0.3", "y", "refill", "0.1")
    assert done.returncode == 0, done.stderr
    words = arguments(done)
    assert words[0] == "sparsify"
    assert "--pretrained" not in words
    flags = flags_of(words)
    assert flags.pop("--out").startswith("runs/a folder-vit_small-refill-")
    assert flags.pop("--augment") == "medium"
    assert flags == {
        "--data": "a folder",
        "--model": "vit_small",
        "--epochs": "5",
        "--dense-epochs": "5",
        "--algorithm": "refill",
        "--rate": "0.3",
        "--reg": "2.0",
        "--exp": "3",
        "--fillback": "0.1",
    }
    (log,) = (here / "launch_logs").iterdir()
    assert "arg sparsify" in log.read_text()


def test_launched_with_a_yes_it_begins_with_pretrained_weights_and_more_flags(launch: Any) -> None:
    done = launch(answer="y\n", VITSCOPE_FLAGS="--rounds 3 --seeds 2")
    words = arguments(done)
    assert "--pretrained" in words
    assert words[-4:] == ["--rounds", "3", "--seeds", "2"]


def test_launched_it_fails_as_sparsify_fails(launch: Any) -> None:
    assert launch("digits", "vit_tiny", "2", "1", "4", "true", "0.2", "y", STUB_CODE="143").returncode == 143


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("cifar10 vit_tiny 80 1.0 4 maybe", "PRETRAINED"),
        ("cifar10 vit_tiny 80 1.0 4 true 0.2 yes", "AUTO"),
        ("cifar10 vit_tiny 80 1.0 4 true 0.2 y prune", "ALGORITHM"),
        ("1 2 3 4 5 true 7 y rsst 10 11", "up to ten"),
    ],
)
def test_launched_with_mistakes_it_begins_nothing(words: str, told: str, launch: Any, here: Path) -> None:
    done = launch(*words.split())
    assert done.returncode == 2
    assert told in done.stderr
    assert arguments(done) == []
    assert not (here / "launch_logs").exists()


def test_what_the_launcher_says_is_understood(launch: Any, asked: list[SimpleNamespace]) -> None:
    """The words it makes, given to the real command."""
    words = arguments(launch("digits", "vit_tiny", "3", "1.0", "4", "true", "0.2", "y"))
    assert main([*words, "--json"]) == 0
    (call,) = asked
    assert (call.config.data.name, call.config.model.name) == ("digits", "vit_tiny")
    assert (call.sparse.epochs, call.sparse.dense_epochs, call.sparse.algorithm) == (3, 3, "rsst")


def test_its_folder_stands_for_the_network_it_ended_with(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sparsify", "mini.yaml", "--algorithm", "oneshot", *TINY, "--out", "x", "--json"]) == 0
    row = json.loads(capsys.readouterr().out)["rows"][-1]
    assert main(["eval", "x", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["accuracy"] == pytest.approx(row["test_accuracy"])
    assert found["data"] == settings().data.name
    card = Path("x/model/README.md").read_text()
    assert "## How it was made smaller\n\n`vitscope sparsify`: oneshot, rate 0.4, rounds: 1, 2 epochs\n" in card
    assert "heads: 4 of 6 are left" in card
    assert f"parameters: {row['params']:,} of " in card
    loaded = vitscope.load_model("x")
    assert sum(weight.numel() for weight in loaded.parameters()) == row["params"]


def test_resumed_it_takes_every_word_that_is_typed(asked: list[SimpleNamespace]) -> None:
    """Also those that say what is meant without them."""
    Path("x").mkdir()
    save_yaml(settings(), Path("x/train.yaml"))
    save_yaml(SparseConfig(controls="all", rounds=3, timing="none"), Path("x/sparse.yaml"))
    Path("x/source.json").write_text('{"source": null}')
    assert main(["sparsify", "--resume", "--out", "x", "--json", "--seeds", "2"]) == 0
    assert (
        main(["sparsify", "--resume", "--out", "x", "--json", "--controls", "none", "--rounds=1", "--timing", "all"])
        == 0
    )
    kept, changed = (call.sparse for call in asked)
    assert (kept.controls, kept.rounds, kept.seeds, kept.timing) == ("all", 3, 2, "none")
    assert (changed.controls, changed.rounds, changed.seeds, changed.timing) == ("none", 1, 1, "all")


@pytest.mark.parametrize("name", ["rounds", "exp", "controls"])
def test_a_folder_named_like_a_setting_is_resumed(name: str, asked: list[SimpleNamespace]) -> None:
    """What a flag is given is no flag."""
    Path(name).mkdir()
    save_yaml(settings(), Path(name, "train.yaml"))
    save_yaml(SparseConfig(controls="all", rounds=3, exp=2.0), Path(name, "sparse.yaml"))
    Path(name, "source.json").write_text('{"source": null}')
    assert main(["sparsify", "--resume", "--out", name, "--json"]) == 0
    assert (asked[0].sparse.rounds, asked[0].sparse.exp, asked[0].sparse.controls) == (3, 2.0, "all")


def test_ctrl_c_lets_it_say_how_to_go_on(here: Path) -> None:
    """A terminal sends it to every process of the group: what writes the log may not leave before what is logged."""
    stub = here / "stub"
    stub.write_text("#!/bin/sh\ntrap 'sleep 0.3; echo next: --resume; exit 130' INT\necho begun\nsleep 30 & wait $!\n")
    stub.chmod(stub.stat().st_mode | stat.S_IXUSR)
    with subprocess.Popen(
        ["bash", str(LAUNCHER), "digits", "vit_tiny", "2", "1", "4", "false", "0.2", "y"],
        cwd=here,
        env={**os.environ, "VITSCOPE": str(stub)},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line == "begun\n":
                break
        os.killpg(process.pid, signal.SIGINT)
        said = process.stdout.read()
    assert "next: --resume" in said
    (log,) = (here / "launch_logs").iterdir()
    assert "next: --resume" in log.read_text()
    assert process.returncode == 130
