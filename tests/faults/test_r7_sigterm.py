"""R7: SIGTERM in a step, in evaluation, before the first step: saved within one step, exit code 143, resumed equal;
in one process, and in two that train together, whichever of them hears it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from faults.rank_processes import BOTH, noted, start_torchrun, together_uninterrupted, train_together
from faults.train_process import (
    STEPS,
    STEPS_PER_EPOCH,
    Child,
    Ended,
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


def check_stopped(ended: Ended, run: Path, step: int, *flags: str) -> None:
    """What SIGTERM leaves behind, and that it goes on from there as if nothing had been."""
    assert ended.code == 143, ended
    assert "Traceback" not in ended.err
    assert f"stopped by SIGTERM after step {step}; everything is saved" in ended.err
    assert f"vitscope train --resume --out {run}" in ended.out
    assert (status(run)["state"], status(run)["step"]) == ("stopped", step)
    assert newest_checkpoint(run).name == f"step-{step:06d}"
    assert (newest_checkpoint(run) / "COMPLETE").exists()
    assert max((row["step"] for row in rows(run)), default=0) == step
    assert not [path for path in run.rglob("*") if path.name.endswith(".tmp")]
    done = train("--resume", "--out", str(run))
    assert done.code == 0, done
    assert f"resuming after step {step}" in done.err
    assert differences(run, uninterrupted(*flags)) == []


def terminated(folder: Path, function: str, call: int, *flags: str) -> tuple[Ended, Path]:
    settings, run = write_settings(folder / "settings.yaml"), folder / "run"
    place, _, name = function.rpartition(".")
    trap = Trap(place, name, call, (signal.SIGTERM,))
    return train(str(settings), "--out", str(run), *flags, traps=(trap,)), run


@pytest.mark.parametrize("step", [6, STEPS])
def test_in_a_step(step: int, tmp_path: Path) -> None:
    check_stopped(*terminated(tmp_path, "vitscope.train.launch.train_step", step), step)


@pytest.mark.parametrize("batch", [2, 3])
def test_in_the_first_evaluation(batch: int, tmp_path: Path) -> None:
    """216 validation pictures are 3 batches; after the last there is nothing left to interrupt, and one step more."""
    ended, run = terminated(tmp_path, "vitscope.train.evaluate._judge", batch)
    check_stopped(ended, run, STEPS_PER_EPOCH + (batch == 3))


def test_in_the_last_evaluation(tmp_path: Path) -> None:
    ended, run = terminated(tmp_path, "vitscope.train.evaluate._judge", 4)
    assert not any(row.get("epoch") == 2 and "val/loss" in row for row in rows(run))
    check_stopped(ended, run, STEPS)


@pytest.mark.parametrize(
    "function",
    [
        "vitscope.train.resume.open_dataset",
        "vitscope.train.fit.draw_first",
    ],
)
def test_before_the_first_step(function: str, tmp_path: Path) -> None:
    check_stopped(*terminated(tmp_path, function, 1), 1)


def test_while_a_checkpoint_is_saved(tmp_path: Path) -> None:
    """Of step 0, 4 and then 8. The step that follows is the last."""
    check_stopped(*terminated(tmp_path, "vitscope.train.checkpoints.files.put", 3), 9)


def test_between_the_question_whether_to_save_and_the_one_whether_to_stop(tmp_path: Path) -> None:
    """The loop asks at each step whether a checkpoint is due; after step 6 there is none."""
    check_stopped(*terminated(tmp_path, "vitscope.train.loop._is_due", 6), 7)


@pytest.mark.parametrize("batch", [1, 2])
def test_in_the_final_test(batch: int, tmp_path: Path) -> None:
    """Two evaluations of 3 batches come before. Nothing of a test that was not finished is written."""
    ended, run = terminated(tmp_path, "vitscope.train.evaluate._judge", 6 + batch)
    assert [row["epoch"] for row in rows(run) if "val/loss" in row] == [1, 2]
    assert not any("test/loss" in row for row in rows(run))
    check_stopped(ended, run, STEPS)
    assert sum("test/loss" in row for row in rows(run)) == 1


def test_before_the_final_test(tmp_path: Path) -> None:
    ended, run = terminated(tmp_path, "vitscope.train.fit.finish", 1)
    assert not any("test/loss" in row for row in rows(run))
    check_stopped(ended, run, STEPS)
    assert status(run)["state"] == "finished"


def test_after_the_final_test_the_run_is_finished_all_the_same(tmp_path: Path) -> None:
    ended, run = terminated(tmp_path, "vitscope.train.finish.model_card", 1)
    assert ended.code == 0, ended
    assert status(run)["state"] == "finished"
    assert differences(run, uninterrupted()) == []


def test_stopped_again_and_again(tmp_path: Path) -> None:
    """A step forward each time, from the first moment on."""
    settings, run = write_settings(tmp_path / "settings.yaml"), tmp_path / "run"
    trap = Trap("vitscope.train.resume", "open_dataset", 1, (signal.SIGTERM,))
    for step in (1, 2):
        ended = train(str(settings), "--out", str(run), "--resume", traps=(trap,))
        assert (ended.code, status(run)["step"]) == (143, step), ended
    check_stopped(train("--out", str(run), "--resume", traps=(trap,)), run, 3)


@pytest.mark.parametrize("to_all", [False, True], ids=["process", "group"])
def test_with_workers_and_from_outside(to_all: bool, tmp_path: Path) -> None:
    settings, run = write_settings(tmp_path / "settings.yaml"), tmp_path / "run"
    child = start_warm(str(settings), "--out", str(run), *TWO_WORKERS)
    child.wait_for_step(run, 5)
    child.send_to_all(signal.SIGTERM) if to_all else child.send(signal.SIGTERM)
    ended = child.wait()
    check_stopped(ended, run, status(run)["step"], *TWO_WORKERS)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="asks Linux what a process has loaded")
def test_while_torch_is_imported(tmp_path: Path) -> None:
    settings, run = write_settings(tmp_path / "settings.yaml"), tmp_path / "run"
    child = start(str(settings), "--out", str(run))
    wait_for_torch(child)
    assert not run.exists()
    child.send(signal.SIGTERM)
    check_stopped(child.wait(), run, 1)


def wait_for_torch(child: Child) -> None:
    """Until its library is loaded; the import goes on for a second."""
    maps = Path(f"/proc/{child.pid}/maps")
    while "libtorch_cpu" not in maps.read_text():
        assert not child.has_ended()


# --- two processes ----------------------------------------------------------------------------------------------------


def check_stopped_together(ended: list[Ended], run: Path, step: int) -> None:
    """Both have left at the same step, one has written, and both go on as if nothing had been."""
    assert [one.code for one in ended] == [143, 143], f"{ended[0]}\n{ended[1]}"
    assert f"stopped by SIGTERM after step {step}; everything is saved" in ended[0].err
    assert f"vitscope train --resume --out {run}" in ended[0].out
    assert (ended[1].out, ended[1].err) == ("", "")
    check_left_by_two(run, step)


def check_left_by_two(run: Path, step: int) -> None:
    assert (status(run)["state"], status(run)["step"]) == ("stopped", step)
    assert newest_checkpoint(run).name == f"step-{step:06d}"
    assert (newest_checkpoint(run) / "COMPLETE").exists()
    assert max(row["step"] for row in rows(run)) == step
    assert not [path for path in run.rglob("*") if path.name.endswith(".tmp")]
    first, second = train_together("--resume", "--out", str(run))
    assert (first.code, second.code) == (0, 0), f"{first}\n{second}"
    assert f"resuming after step {step}" in first.err
    assert differences(run, together_uninterrupted()) == []


def terminated_together(folder: Path, function: str, call: int, trapped: tuple[int, ...]) -> tuple[list[Ended], Path]:
    settings, run = write_settings(folder / "settings.yaml"), folder / "run"
    place, _, name = function.rpartition(".")
    trap = Trap(place, name, call, (signal.SIGTERM,))
    return train_together(str(settings), "--out", str(run), traps=(trap,), trapped=trapped), run


@pytest.mark.parametrize("trapped", [BOTH, (0,), (1,)], ids=["both", "first", "second"])
def test_two_processes_in_a_step(trapped: tuple[int, ...], tmp_path: Path) -> None:
    check_stopped_together(*terminated_together(tmp_path, "vitscope.train.launch.train_step", 6, trapped), 6)


@pytest.mark.parametrize("trapped", [BOTH, (1,)], ids=["both", "second"])
def test_two_processes_in_evaluation(trapped: tuple[int, ...], tmp_path: Path) -> None:
    ended, run = terminated_together(tmp_path, "vitscope.train.evaluate._judge", 2, trapped)
    check_stopped_together(ended, run, STEPS_PER_EPOCH)


def test_two_processes_of_which_only_the_first_hears_it_in_the_test(tmp_path: Path) -> None:
    ended, run = terminated_together(tmp_path, "vitscope.train.finish._test", 1, (0,))
    check_stopped_together(ended, run, 2 * STEPS_PER_EPOCH)


def test_two_processes_before_they_meet(tmp_path: Path) -> None:
    check_stopped_together(*terminated_together(tmp_path, "vitscope.train.fit.join", 1, (1,)), 1)


@pytest.mark.parametrize("to", ["torchrun", pytest.param("second", marks=pytest.mark.slow)])
def test_two_processes_under_torchrun(to: str, tmp_path: Path) -> None:
    """torchrun passes SIGTERM on to all, and sends it to the rest when one has left."""
    settings, run = write_settings(tmp_path / "settings.yaml", {"loop": {"epochs": 200}}), tmp_path / "run"
    child, notes = start_torchrun(str(settings), "--out", str(run))
    child.wait_for_step(run, 5)
    child.send(signal.SIGTERM) if to == "torchrun" else os.kill(noted(notes, "pid")[1], signal.SIGTERM)
    ended = child.wait()
    assert noted(notes, "code") == [143, 143], ended
    assert ended.code == 1
    assert ended.out.count("vitscope train --resume --out") == 1
    step = status(run)["step"]
    assert (status(run)["state"], newest_checkpoint(run).name) == ("stopped", f"step-{step:06d}")
    assert max(row["step"] for row in rows(run)) == step
