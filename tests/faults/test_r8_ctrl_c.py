"""R8: Ctrl-C once saves, says how to go on and leaves with 130; a second one leaves at once."""

from __future__ import annotations

import json
import shlex
import signal
from pathlib import Path

import pytest

from faults.train_process import (
    Trap,
    differences,
    newest_checkpoint,
    rows,
    start,
    start_warm,
    status,
    train,
    uninterrupted,
    write_settings,
)

TWO_WORKERS = ("--data.loader", "worker", "--data.workers", "2")
ONCE, TWICE = (signal.SIGINT,), (signal.SIGINT, signal.SIGINT)
A_STEP = ("vitscope.train.launch", "train_step")


def test_once_saves_and_says_how_to_go_on(tmp_path: Path) -> None:
    settings, run = write_settings(tmp_path / "settings.yaml"), tmp_path / "a run"
    ended = train(str(settings), "--out", str(run), traps=(Trap(*A_STEP, 6, ONCE),))
    assert ended.code == 130, ended
    assert "stopped by Ctrl-C after step 6; everything is saved" in ended.err
    assert "Traceback" not in ended.err
    assert (status(run)["state"], status(run)["step"]) == ("stopped", 6)
    assert newest_checkpoint(run).name == "step-000006"
    said = next(line for line in ended.out.splitlines() if line.startswith("next: "))
    program, verb, *args = shlex.split(said.removeprefix("next: "))
    assert (program, verb) == ("vitscope", "train")
    done = train(*args)  # what was printed, word for word
    assert done.code == 0, done
    assert "resuming after step 6" in done.err
    assert differences(run, uninterrupted()) == []


def test_once_as_json(tmp_path: Path) -> None:
    settings, run = write_settings(tmp_path / "settings.yaml"), tmp_path / "run"
    ended = train(str(settings), "--out", str(run), "--json", traps=(Trap(*A_STEP, 2, ONCE),))
    assert ended.code == 130, ended
    report = json.loads(ended.out)
    assert report["state"] == "stopped"
    assert report["next"] == f"vitscope train --resume --out {run}"


@pytest.mark.parametrize(
    ("place", "function", "call"),
    [(*A_STEP, 6), ("vitscope.train.evaluate", "_judge", 2), ("vitscope.train.checkpoints.files", "put", 3)],
    ids=["step", "evaluation", "save"],
)
def test_twice_leaves_at_once_and_loses_only_what_was_not_saved(
    place: str, function: str, call: int, tmp_path: Path
) -> None:
    settings, run = write_settings(tmp_path / "settings.yaml"), tmp_path / "run"
    ended = train(str(settings), "--out", str(run), traps=(Trap(place, function, call, TWICE),))
    assert ended.code == 130, ended
    assert "Traceback" not in ended.err
    assert "everything is saved" not in ended.err
    assert status(run)["state"] == "stopped"
    newest = {"train_step": 4, "_judge": 16, "put": 4}[function]
    assert newest_checkpoint(run).name == f"step-{newest:06d}"  # nothing was saved any more
    done = train("--resume", "--out", str(run))
    assert done.code == 0, done
    assert f"resuming after step {newest}" in done.err
    assert differences(run, uninterrupted()) == []


def test_twice_before_anything_is_there(tmp_path: Path) -> None:
    settings, run = write_settings(tmp_path / "settings.yaml"), tmp_path / "run"
    trap = Trap("vitscope.train.resume", "open_dataset", 1, TWICE)
    ended = train(str(settings), "--out", str(run), traps=(trap,))
    assert (ended.code, ended.out, ended.err) == (130, "", "")
    assert not run.exists()


def test_the_terminal_hits_the_workers_too(tmp_path: Path) -> None:
    """Ctrl-C goes to the whole process group. Workers must neither die of it nor say a word."""
    settings, run = write_settings(tmp_path / "settings.yaml"), tmp_path / "run"
    child = start_warm(str(settings), "--out", str(run), *TWO_WORKERS)
    child.wait_for_step(run, 6)
    child.send_to_all(signal.SIGINT)
    ended = child.wait()
    assert ended.code == 130, ended
    assert "Traceback" not in ended.err
    assert "worker" not in "".join(ended.err.splitlines(keepends=True)[2:])
    assert max(row["step"] for row in rows(run)) == status(run)["step"]
    done = train("--resume", "--out", str(run))
    assert done.code == 0, done
    assert differences(run, uninterrupted(*TWO_WORKERS)) == []


def test_by_hand_twice_from_outside(tmp_path: Path) -> None:
    """The second one comes while the first is being answered (or after that: then there was nothing left to leave)."""
    settings, run = write_settings(tmp_path / "settings.yaml", {"loop": {"epochs": 1000}}), tmp_path / "run"
    child = start(str(settings), "--out", str(run))
    child.wait_for_step(run, 3)
    child.send_to_all(signal.SIGINT)
    child.send_to_all(signal.SIGINT)
    ended = child.wait()
    assert ended.code == 130, ended
    assert "Traceback" not in ended.err
    assert status(run)["state"] == "stopped"
