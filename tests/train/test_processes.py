"""Processes that train together do what one does with the whole batch; one writes, and all refuse alike."""

from __future__ import annotations

import json
import os
import shutil
import signal
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import distributed

from faults.rank_processes import noted, start_together, start_torchrun, train_together
from faults.train_process import Trap, everything, newest_checkpoint, rows, status, train, write_settings
from train.tiny_runs import network, state_of, tiny
from vitscope.core.config import to_dict, updated
from vitscope.core.environment import process_place
from vitscope.core.errors import ConfigError, DataError, UsageError, VitscopeError, said_by_first
from vitscope.core.read_only_folder import ReadOnlyFolder
from vitscope.core.run_folder import RunFolder
from vitscope.core.seed import derive_seed
from vitscope.core.yaml import load_yaml
from vitscope.data.dataset import open_dataset
from vitscope.data.loaders.loader import BadSample
from vitscope.data.order import ALONE, Lane
from vitscope.train import board, left_out, meeting, processes
from vitscope.train.bad_step import record_bad_step
from vitscope.train.basis import lay_out, settle
from vitscope.train.board import Board
from vitscope.train.changes import refuse_other_settings
from vitscope.train.config import TrainConfig
from vitscope.train.launch import Launcher, choose_launch
from vitscope.train.processes import ALONE_PROCESSES, Processes, join
from vitscope.train.replay import replay_bad_step
from vitscope.train.signals import StopFlag

PLAIN: dict[str, dict[str, Any]] = {
    "model": {"drop_rate": 0.0, "drop_path_rate": 0.0},
    "augment": {"mixup_alpha": 0.0, "cutmix_alpha": 0.0},
    "optim": {"name": "sgd", "lr": 0.3, "clip_norm": 0.5},
    "loop": {"epochs": 1},
}
"""Nothing in it depends on which pictures are together: not which are dropped, mixed or normalised."""
CNN = {"family": "cnn", "img_size": 8, "in_chans": 1, "widths": [4], "drop_rate": 0.0, "head_drop_rate": 0.0}


def write_cnn(path: Path) -> Path:
    """Settings of a model that has BatchNorm, and of a single step with all pictures."""
    write_settings(path, {**PLAIN, "data": {"batch_size": 1222}, "schedule": {"warmup": "0 steps"}})
    path.write_text(json.dumps({**json.loads(path.read_text()), "model": CNN}))
    return path


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(newest_checkpoint(run) / "model.safetensors")


# --- the same training ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flags", [(), ("--loop.micro-batch", "10")], ids=["whole", "micro_batches"])
def test_two_halves_of_a_batch_train_as_the_whole(flags: tuple[str, ...], tmp_path: Path) -> None:
    settings = str(write_settings(tmp_path / "settings.yaml", PLAIN))
    alone = train(settings, "--out", str(tmp_path / "alone"))
    both = train_together(settings, "--out", str(tmp_path / "both"), *flags)
    assert (alone.code, both[0].code, both[1].code) == (0, 0, 0), f"{alone}\n{both[0]}\n{both[1]}"
    wanted, found = rows(tmp_path / "alone"), rows(tmp_path / "both")
    assert len(found) == len(wanted) == 18  # 16 steps, an epoch, a test
    for one, other in zip(wanted, found, strict=True):
        assert other == pytest.approx(one, abs=2e-5, rel=2e-5)
    before, after = weights(tmp_path / "alone"), weights(tmp_path / "both")
    for name, value in before.items():
        torch.testing.assert_close(after[name], value, atol=2e-5, rtol=1e-4)
    begun = load_file(first_checkpoint(settings, tmp_path) / "model.safetensors")
    assert max(float((before[name] - begun[name]).abs().max()) for name in before) > 0.01, "it has learnt"


def first_checkpoint(settings: str, folder: Path) -> Path:
    """The weights a run begins with, saved before the first step."""
    trap = Trap("vitscope.train.launch", "train_step", 1, (signal.SIGKILL,))
    train(settings, "--out", str(folder / "killed"), traps=(trap,))
    return folder / "killed" / "checkpoints" / "step-000000"


def test_running_means_are_of_the_whole_batch(tmp_path: Path) -> None:
    """After one step: before it, both have the same weights, and the mean of two halves' means is the batch's."""
    settings = str(write_cnn(tmp_path / "settings.yaml"))
    alone = train(settings, "--out", str(tmp_path / "alone"))
    both = train_together(settings, "--out", str(tmp_path / "both"))
    assert (alone.code, both[0].code, both[1].code) == (0, 0, 0), f"{alone}\n{both[0]}\n{both[1]}"
    wanted, found = weights(tmp_path / "alone"), weights(tmp_path / "both")
    name = next(name for name in wanted if name.endswith("running_mean"))
    assert float(wanted[name].abs().max()) > 1e-3
    torch.testing.assert_close(found[name], wanted[name], atol=1e-6, rtol=1e-5)


def test_each_process_drops_other_units() -> None:
    """The first as one process alone does."""
    seeds = [derive_seed(7, "step", 3, 4)]
    for rank in (0, 1):
        state = type("State", (), {"processes": type("Rank", (), {"rank": rank})()})()
        Launcher(state, None, None, launch="eager", batch_size=2, seed=7).seed_step(3, 4)  # type: ignore[arg-type]
        seeds.append(torch.initial_seed())
    assert seeds[0] == seeds[1] != seeds[2]


# --- three ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three processes that mix, vary and drop, in two micro batches each."""
    folder = tmp_path_factory.mktemp("three")
    settings = str(write_settings(folder / "settings.yaml", {"loop": {"epochs": 1}, "checkpoint": {"keep": 9}}))
    ended = train_together(settings, "--out", str(folder / "run"), "--loop.micro-batch", "16", world=3)
    assert [one.code for one in ended] == [0, 0, 0], "\n".join(map(str, ended))
    return folder / "run"


def test_why_a_step_is_launched_as_it_is(three: Path) -> None:
    log = (three / "train.log").read_text()
    assert "launch mode: eager (kernel by kernel, because there are several processes)" in log
    assert "chosen automatically" not in log


@pytest.mark.parametrize("step", [1, 5])
def test_a_step_of_three_is_taken_again_part_by_part(step: int, three: Path, tmp_path: Path) -> None:
    """As if it had been a bad one: same pictures, same mixing, same dropout in each part."""
    run = Path(shutil.copytree(three, tmp_path / "run"))
    row = next(row for row in rows(run) if row["step"] == step)
    kept = load_file(run / "checkpoints" / f"step-{step - 1:06d}" / "model.safetensors")
    state = state_of(network(), micro_batch=16, processes=joined(world=3))
    place = record_bad_step(run / "diagnostics", state, row, seed=0, epoch=0, batch=step - 1, weights=kept)
    assert place is not None
    found = replay_bad_step(place)
    assert found.recorded["world"] == 3
    assert found.loss == pytest.approx(row["train/loss"], rel=1e-5)
    assert found.grad_norm == pytest.approx(row["train/grad_norm"], rel=1e-4)
    alone = json.loads((place / "step.json").read_text())
    (place / "step.json").write_text(json.dumps({**alone, "world": 1}))
    assert replay_bad_step(place).loss != pytest.approx(row["train/loss"], rel=1e-3), "the parts matter"


# --- one writes -------------------------------------------------------------------------------------------------------


def test_the_first_alone_writes_and_speaks(tmp_path: Path) -> None:
    settings = str(write_settings(tmp_path / "settings.yaml", {"loop": {"epochs": 1}}))
    children = start_together(settings, "--out", str(tmp_path / "run"), "--precision.launch", "graph")
    first, second = (child.wait() for child in children)
    assert (first.code, second.code) == (0, 0), f"{first}\n{second}"
    assert (second.out, second.err) == ("", "")
    assert first.out.count("test accuracy") == 1
    assert "2 processes, 36 pictures of each batch to each" in first.err
    assert "because there are several processes; 'graph' is for one)" in first.err
    run = tmp_path / "run"
    assert [row["step"] for row in rows(run) if "train/loss" in row] == list(range(1, 17))
    assert len([row for row in rows(run) if "test/accuracy" in row]) == 1
    assert len(list(run.glob("events.out.tfevents.*"))) == 1
    assert (run / "train.log").read_text().count("epoch 1:") == 1
    assert (status(run)["state"], status(run)["pid"]) == ("finished", children[0].pid)


def test_a_read_only_folder_reads_and_writes_nothing(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", name="run")
    run.metrics.append(step=1, epoch=1)
    before = everything(tmp_path)
    seen = ReadOnlyFolder(run.path)
    seen.metrics.append(step=2, epoch=1)
    assert seen.metrics.cut(lambda row: True) == 0
    seen.write_status("running", step=2)
    seen.status.beat()
    seen.save_config(object())
    seen.save_environment()
    assert everything(tmp_path) == before
    assert [row["step"] for row in seen.metrics.read()] == [1]
    assert (seen.read_status() or {})["state"] == "starting"


# --- both refuse ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two processes, stopped in the middle of its first epoch, with its settings beside it."""
    folder = tmp_path_factory.mktemp("stopped")
    trap = Trap("vitscope.train.launch", "train_step", 3, (signal.SIGTERM,))
    settings = str(write_settings(folder / "settings.yaml"))
    ended = train_together(settings, "--out", str(folder / "run"), traps=(trap,))
    assert [one.code for one in ended] == [143, 143], f"{ended[0]}\n{ended[1]}"
    return folder


@pytest.mark.parametrize(
    ("flags", "code", "what"),
    [
        (("--resume", "--model.depth", "3"), 2, "model.depth cannot change within a run"),
        (("--resume-from", "step-000009"), 1, "there is no checkpoint 'step-000009'"),
        ((), 2, "is not empty"),
    ],
    ids=["structural", "checkpoint", "folder"],
)
def test_a_refusal_is_said_once_and_ends_both(
    flags: tuple[str, ...], code: int, what: str, stopped: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(stopped, tmp_path / "copy"))
    before = everything(folder / "run")
    settings = () if flags else (str(folder / "settings.yaml"),)
    first, second = train_together(*settings, "--out", str(folder / "run"), *flags)
    assert (first.code, second.code) == (code, code), f"{first}\n{second}"
    assert what in first.err
    assert first.err.count("error:") == 1
    assert (second.out, second.err) == ("", "")
    if code == 2:
        assert everything(folder / "run") == before


def assert_left(notes: Path) -> None:
    """The first with the error's own exit code, the other too, unless SIGTERM came before it had begun."""
    first, second = noted(notes, "code")
    assert first == 2
    assert second in (2, -signal.SIGTERM)


@pytest.mark.parametrize(
    "words",
    [("digits_vit", "--epohcs", "3"), ("nowhere.yaml",), ("digits_vit", "--device", "mps")],
    ids=["flag", "file", "device"],
)
def test_what_is_refused_before_they_meet_is_said_once(words: tuple[str, ...]) -> None:
    child, notes = start_torchrun(*words)
    ended = child.wait()
    assert ended.code == 1, ended
    assert_left(notes)
    assert ended.err.count("error: ") == 1
    assert ended.err.count("to do: ") == 1


@pytest.mark.parametrize("verb", ["sparsify", "doctor"])
def test_verbs_that_work_alone_say_so_once(verb: str) -> None:
    child, notes = start_torchrun("digits_vit", verb=verb)
    ended = child.wait()
    assert_left(notes)
    assert ended.err.count("processes: expected one: ") == 1
    assert ended.err.count("error: ") == 1


def test_a_batch_that_cannot_be_shared_is_refused(tmp_path: Path) -> None:
    settings = str(write_settings(tmp_path / "settings.yaml", {"data": {"batch_size": 71}}))
    first, second = train_together(settings, "--out", str(tmp_path / "run"))
    assert (first.code, second.code) == (2, 2), f"{first}\n{second}"
    assert "a batch of 71 cannot be shared evenly by 2 processes" in first.err
    assert "--batch-size 72" in first.err
    assert second.err == ""


@pytest.mark.parametrize("killed", [0, 1])
def test_a_process_that_dies_leaves_nobody_waiting(killed: int, tmp_path: Path) -> None:
    settings = str(write_settings(tmp_path / "settings.yaml"))
    trap = Trap("vitscope.train.launch", "train_step", 6, (signal.SIGKILL,))
    ended = train_together(settings, "--out", str(tmp_path / "run"), traps=(trap,), trapped=(killed,))
    assert ended[killed].code == -signal.SIGKILL
    assert ended[1 - killed].code == 1, ended[1 - killed]
    assert "Traceback" not in ended[1 - killed].err
    resumed = train_together("--resume", "--out", str(tmp_path / "run"), "--loop.epochs", "1")
    assert [one.code for one in resumed] == [0, 0], f"{resumed[0]}\n{resumed[1]}"


def test_two_that_diverge_give_up_together(tmp_path: Path) -> None:
    changes = {"optim": {"name": "sgd", "lr": 1e30, "clip_norm": None}, "schedule": {"warmup": "0 steps"}}
    settings = str(write_settings(tmp_path / "settings.yaml", changes))
    first, second = train_together(settings, "--out", str(tmp_path / "run"))
    assert (first.code, second.code) == (4, 4), f"{first}\n{second}"
    assert "training diverged" in first.err
    assert "back to step" in first.err
    assert second.err == ""
    assert status(tmp_path / "run")["state"] == "diverged"


# --- one process alone ------------------------------------------------------------------------------------------------


def test_alone_every_question_is_answered_at_once() -> None:
    value = torch.tensor([1.0, 2.0])
    ALONE_PROCESSES.mean_(value)
    assert value.tolist() == [1.0, 2.0]
    assert ALONE_PROCESSES.most(7) == 7
    assert ALONE_PROCESSES.by_first(lambda: 3) == ALONE_PROCESSES.after_first(lambda: 3) == 3
    assert ALONE_PROCESSES.is_first
    assert ALONE_PROCESSES.lane is ALONE


def test_the_place_is_read_from_torchruns_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    assert process_place() == (0, 0, 1)
    assert type(join("cpu")) is Processes
    monkeypatch.setenv("RANK", "5")
    monkeypatch.setenv("WORLD_SIZE", "8")
    assert process_place() == (0, 0, 1), "not torchrun's"
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert process_place() == (5, 1, 8)


def test_one_device_for_several_is_refused_before_they_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("RANK", "1"), ("LOCAL_RANK", "1"), ("WORLD_SIZE", "2")):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(processes, "pick_device", torch.device)
    for wish in ("cuda:0", "mps"):
        with pytest.raises(UsageError, match=f"2 processes cannot train on the one device '{wish}'") as refused:
            join(wish)
        assert not refused.value.was_said


@pytest.mark.parametrize("rank", [0, 2])
def test_more_processes_than_gpus_are_refused_by_all_of_them(rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that nobody waits for one that has left."""
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 3, "LOCAL_WORLD_SIZE": 3}
    for name, value in place.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr(processes, "pick_device", torch.device)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(UsageError, match="expected 2 at most, one for each GPU, received 3") as refused:
        join("cuda")
    assert "--nproc-per-node 2" in (refused.value.fix or "")


def test_what_all_find_is_said_by_the_first() -> None:
    for rank in (0, 1):
        with pytest.raises(VitscopeError) as found, said_by_first(rank):
            raise VitscopeError("it is so")
        assert found.value.was_said is (rank == 1)


def test_out_of_memory_among_several_is_said_and_not_tried_again() -> None:
    state = state_of(network())
    state.processes = Processes(torch.device("cpu"))
    state.processes.world, state.processes.can_try_again = 2, False
    tries = []

    def step() -> None:
        tries.append(1)
        raise torch.OutOfMemoryError("CUDA out of memory")

    launcher = Launcher(state, None, None, launch="eager", batch_size=72, seed=0)  # type: ignore[arg-type]
    with pytest.raises(VitscopeError, match="with 36 pictures at once") as refused:
        launcher._attempt(step)
    assert "--loop.micro-batch 18" in str(refused.value)
    assert len(tries) == 1


def test_several_launch_kernel_by_kernel() -> None:
    for wish in ("auto", "graph", "compiled", "compiled_graph"):
        assert choose_launch(wish, torch.device("cuda"), alone=False) == "eager"


def test_a_deaf_end_keeps_the_exit_code() -> None:
    before = signal.getsignal(signal.SIGTERM)
    try:
        with StopFlag() as stop:
            stop.stays_deaf = True
        os.kill(os.getpid(), signal.SIGTERM)  # would end this process
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


# --- what two could do differently ------------------------------------------------------------------------------


class Second(Processes):
    """The second of two, which hears what the first has chosen."""

    rank, world = 1, 2

    def by_first(self, call: Any) -> Any:
        return "worker"


def test_all_take_the_loader_of_the_first() -> None:
    """Each would choose by the memory it finds; kinds that leave out other pictures count other batches."""
    config = tiny()
    dataset = open_dataset(config.data)
    alone = lay_out(config, dataset, torch.device("cpu"))
    second = lay_out(config, dataset, torch.device("cpu"), Second(torch.device("cpu")))
    whys = [basis.loader("train", training=True, say=print).why for basis in (alone, second)]
    assert [why.partition(":")[0] for why in whys] == ["device loader", "worker loader"]
    assert whys[1].endswith("; the first process chose it for all"), "nobody asked for it"
    assert second.dataset.config.loader == second.config.data.loader == "auto", "what was asked for stays what it is"


def joined(world: int = 2) -> Any:
    """The second of some, without having met the others."""
    made = processes.JoinedProcesses.__new__(processes.JoinedProcesses)
    made.rank, made.world, made.device = 1, world, torch.device("cpu")
    made._shared, made._is_own_group = None, False
    return made


@pytest.mark.parametrize("said", ["[/gloo/transport/tcp/pair.cc:1] Connection reset by peer", "shapes do not fit"])
def test_only_what_is_about_the_others_is_called_their_loss(said: str) -> None:
    lost = "gloo" in said
    with (
        pytest.raises(VitscopeError if lost else RuntimeError, match="has lost the others" if lost else said),
        joined().adding_up(is_last=True),
    ):
        raise RuntimeError(said)


def test_leaving_takes_the_wrapper_off() -> None:
    """It holds the connection for as long as an error's frames hold it."""

    class Wrapped:
        module = object()

    class Objective:
        model: Any = Wrapped()

    one, objective = joined(), Objective()
    one._shared = objective
    one.leave()
    assert objective.model is Wrapped.module


def test_a_picture_left_out_elsewhere_is_named_there_and_put_up(caplog: pytest.LogCaptureFixture) -> None:
    store, sample = distributed.HashStore(), BadSample(3, "cat.png", "truncated")  # pyright: ignore[reportPrivateImportUsage]
    first, second = Board(store, 0, 2), Board(store, 1, 2)
    other = joined()
    other._board = second
    left_out.pass_on(other, sample)
    assert "left out: cat.png: truncated" in caplog.text
    second.put_up(BadSample(4, "dog.png", "empty"))
    assert first.unread() == [sample, BadSample(4, "dog.png", "empty")]
    assert first.unread() == [], "each once"


def test_a_picture_two_processes_met_is_written_down_once(tmp_path: Path) -> None:
    run, said = RunFolder.create(tmp_path / "run", name="run"), list[str]()
    record = left_out.recorder(run, said.append)
    for _ in range(2):
        record(BadSample(3, "cat.png", "truncated"))
    assert said == ["left out: cat.png: truncated"]
    lines = [json.loads(line) for line in run.bad_samples_path.read_text().splitlines()]
    assert lines == [{"index": 3, "where": "cat.png", "reason": "truncated"}]


def test_the_first_error_left_is_the_one_that_is_read() -> None:
    store = distributed.HashStore()  # pyright: ignore[reportPrivateImportUsage]
    boards = [Board(store, rank, 3) for rank in range(3)]
    boards[2].leave_error(DataError("too many", where="here", fix="mend them"))
    boards[1].leave_error(VitscopeError("lost the others"))
    rank, error = boards[0].error_left() or (None, None)
    assert (rank, type(error), str(error)) == (2, DataError, "too many\nwhere: here\nto do: mend them")


def test_a_store_that_has_gone_hides_no_error() -> None:
    class Gone:
        def __getattr__(self, name: str) -> Any:
            raise distributed.DistStoreError("Connection reset by peer")

    lost = Board(Gone(), 1, 2)
    lost.put_up("a note")
    lost.leave_error(VitscopeError("too many"))
    assert (lost.unread(), lost.error_left()) == ([], None)


def test_who_went_without_a_word_leaves_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board, "LAST_WORDS_SECONDS", 0.1)
    assert Board(distributed.HashStore(), 0, 2).error_left() is None  # pyright: ignore[reportPrivateImportUsage]


@pytest.fixture
def half_bad(tmp_path: Path) -> Path:
    """Settings of a run of two processes; all but one of the pictures the second takes of the first batch are torn."""
    draw = np.random.default_rng(0)
    for number in range(60):
        place = tmp_path / "data" / str(number % 2) / f"{number:02}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draw.integers(0, 256, (8, 8), dtype=np.uint8)).save(place)
    data = {"name": str(tmp_path / "data"), "batch_size": 8, "loader": "worker", "workers": 0}
    settings = write_settings(tmp_path / "settings.yaml", {"data": data})
    config = load_yaml(TrainConfig, settings)
    dataset = open_dataset(config.data)
    basis = lay_out(settle(config, dataset), dataset, torch.device("cpu"))
    loader = basis.loader("train", training=True, say=print, lane=Lane(1, 2))
    for index in next(iter(loader.epoch(0))).indices.tolist()[1:]:
        place = Path(dataset.source.where(index))
        place.write_bytes(place.read_bytes()[:-40])
    return settings


def test_what_one_process_refuses_stands_in_the_run(tmp_path: Path, half_bad: Path) -> None:
    """Its reason, not that a connection was lost: the first process writes the folder, and saw nothing wrong."""
    ended = train_together(str(half_bad), "--out", str(tmp_path / "run"))
    assert [one.code for one in ended] == [3, 3], f"{ended[0]}\n{ended[1]}"
    found = status(tmp_path / "run")
    assert found["state"] == "failed"
    assert found["error"].startswith("process 1: ")
    assert "cannot be decoded" in found["error"]
    assert "--data.bad-limit" in found["error"]
    assert "cannot be decoded" in (tmp_path / "run" / "train.log").read_text()
    assert "error: " in ended[1].err
    assert "error: " not in ended[0].err, "said once"


def test_what_any_process_leaves_out_is_written_down(tmp_path: Path, half_bad: Path) -> None:
    flags = ("--data.bad-limit", "0.5", "--loop.epochs", "1")
    ended = train_together(str(half_bad), "--out", str(tmp_path / "run"), *flags)
    assert [one.code for one in ended] == [0, 0], f"{ended[0]}\n{ended[1]}"
    noted = [json.loads(line)["where"] for line in (tmp_path / "run" / "bad_samples.jsonl").read_text().splitlines()]
    assert len(noted) == len(set(noted)) == 3
    assert all(where in ended[1].err for where in noted), "it was the second that met them"


def test_processes_with_unlike_settings_do_not_train_together() -> None:
    config = tiny()

    class First(Second):
        def by_first(self, call: Any) -> Any:
            return to_dict(updated(config, optim=updated(config.optim, lr=0.25)))

    with pytest.raises(ConfigError, match=r"process 1 .* other settings than the first: optim\.lr is 0\.25 there"):
        refuse_other_settings(config, First(torch.device("cpu")))


def test_the_others_wait_for_as_long_as_the_first_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's own half hour is less than decoding, drawing and testing may take. Every meeting has a store of its own:
    what was said in the one before must not be heard again."""
    asked: list[dict[str, Any]] = []
    common = distributed.HashStore()  # pyright: ignore[reportPrivateImportUsage]
    monkeypatch.setattr(distributed, "rendezvous", lambda *_, **__: iter([(common, 0, 1)]))
    monkeypatch.setattr(distributed, "init_process_group", lambda *_, **given: asked.append(given))
    for _ in range(2):
        meeting.meet(torch.device("cpu"), 0, 1)
    assert [given["timeout"].total_seconds() >= 24 * 3600 for given in asked] == [True, True]
    asked[0]["store"].set("address", "old")
    assert not asked[1]["store"].check(["address"])


def test_who_does_not_come_is_named_after_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert meeting.MEETING.total_seconds() <= 3600
    monkeypatch.setattr(meeting, "MEETING", timedelta(seconds=0.2))
    store = distributed.HashStore()  # pyright: ignore[reportPrivateImportUsage]
    store.set("here-1", "")
    with pytest.raises(VitscopeError, match=r"process 0 of 4 has waited .* for processes 2, 3") as absent:
        meeting._await_all(store, 0, 4)
    assert "vitscope.fit" in str(absent.value)
