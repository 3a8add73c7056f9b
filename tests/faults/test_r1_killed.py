"""R1: kill -9 at any moment, then resumed: weights, EMA, optimiser and metrics are an uninterrupted run's, bit for bit.

With dropout, drop path, mixup, CutMix and EMA; by the device loader, and by the worker loader with 0 and 2 workers,
also changed on the way.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from faults.train_process import (
    STEPS,
    STEPS_PER_EPOCH,
    Trap,
    differences,
    newest_checkpoint,
    rows,
    start,
    start_warm,
    status,
    tensors,
    train,
    uninterrupted,
    write_settings,
)

DEVICE = ()
WORKER = ("--data.loader", "worker", "--data.workers")
ALONE, TWO = (*WORKER, "0"), (*WORKER, "2")


def kill_and_resume(folder: Path, moments: Sequence[float], flags: Sequence[tuple[str, ...]]) -> Path:
    """A run killed after the step of each moment, and so much of a step (as time) later; then left to end."""
    settings, run = write_settings(folder / "settings.yaml"), folder / "run"
    for moment, now in zip(moments, flags, strict=False):
        child = start_warm(str(settings), "--out", str(run), "--resume", *now)
        child.wait_for_step(run, int(moment))
        signal.sigtimedwait([], (moment % 1) * 0.03)  # a step takes 10 to 30 ms
        child.send_to_all(signal.SIGKILL)
        assert child.wait().code == -signal.SIGKILL
        assert status(run)["state"] == "running"  # nobody had time to say anything
        assert int(newest_checkpoint(run).name[-6:]) <= int(moment) + STEPS_PER_EPOCH
    done = train(str(settings), "--out", str(run), "--resume", *flags[len(moments)])
    assert done.code == 0, done
    assert "resuming after step" in done.err
    return run


def check_equal(run: Path, reference: Path) -> None:
    assert differences(run, reference) == []
    steps = [row["step"] for row in rows(run) if "train/loss" in row]
    assert steps == list(range(1, STEPS + 1))
    epochs = [row["epoch"] for row in rows(run) if "val/loss" in row]
    assert epochs == [1, 2]
    assert [row["step"] for row in rows(run) if "test/loss" in row] == [STEPS]


def test_what_is_compared_would_show_a_difference() -> None:
    names = tensors(uninterrupted())
    for part in ("model/", "weights/", "trainer/hooks/ema/", "trainer/state/optimizer/", "trainer/course/"):
        assert any(name.startswith(part) for name in names), part
    other = differences(uninterrupted(), uninterrupted(*ALONE))  # the same steps with pictures varied in another way
    for part in ("model/head.weight", "weights/head.weight", "trainer/hooks/ema/head.weight", "metrics.jsonl"):
        assert part in other


def test_the_number_of_workers_does_not_show() -> None:
    assert differences(uninterrupted(*ALONE), uninterrupted(*TWO)) == []


@pytest.mark.parametrize(
    ("seed", "flags"),
    [
        (0, [DEVICE, DEVICE]),
        (1, [DEVICE, DEVICE, DEVICE]),
        (2, [ALONE, ALONE]),
        (3, [TWO, TWO]),
        (4, [TWO, ALONE, TWO]),
    ],
    ids=str,
)
def test_killed_at_a_random_moment(seed: int, flags: list[tuple[str, ...]], tmp_path: Path) -> None:
    chance = random.Random(seed)
    kills = len(flags) - 1
    share = (STEPS - 8) / kills  # the last steps are left alone: the run must not be over when the blow comes
    moments = [1 + number * share + chance.uniform(5, share) for number in range(kills)]
    run = kill_and_resume(tmp_path, moments, flags)
    check_equal(run, uninterrupted(*(DEVICE if flags[0] == DEVICE else ALONE)))


@pytest.mark.parametrize(
    ("function", "call"),
    [
        ("vitscope.train.fit.draw_first", 1),  # nothing there but the checkpoint of step 0
        ("vitscope.train.loop.look", STEPS_PER_EPOCH),  # the last step of an epoch is taken, not written down
        ("vitscope.train.setup.evaluate", 1),
        ("vitscope.train.setup.save_model", 1),  # the epoch's row is written, no checkpoint has it
        ("vitscope.train.loop.save", 5),  # a better model is saved than any checkpoint knows of
        ("vitscope.train.finish.model_card", 1),  # the test's figures are written, "finished" is not
    ],
    ids=str,
)
def test_killed_between_two_things_that_belong_together(function: str, call: int, tmp_path: Path) -> None:
    settings, run = write_settings(tmp_path / "settings.yaml"), tmp_path / "run"
    module, _, name = function.rpartition(".")
    killed = train(str(settings), "--out", str(run), traps=(Trap(module, name, call),))
    assert killed.code == -signal.SIGKILL, killed
    done = train(str(settings), "--out", str(run), "--resume")
    assert done.code == 0, done
    check_equal(run, uninterrupted())


def test_killed_before_the_best_is_marked(tmp_path: Path) -> None:
    """Epoch 2 cannot be better here, so that a mark forgotten after epoch 1 would never be made up for."""
    flags = ("--loop.monitor", "train/epoch_loss", "--loop.monitor-mode", "max")
    settings, run = write_settings(tmp_path / "settings.yaml"), tmp_path / "run"
    trap = Trap("vitscope.train.checkpoints.store.Checkpoints", "mark_best")
    killed = train(str(settings), "--out", str(run), *flags, traps=(trap,))
    assert killed.code == -signal.SIGKILL, killed
    done = train(str(settings), "--out", str(run), "--resume", *flags)
    assert done.code == 0, done
    assert (run / "checkpoints" / "best").read_text() == f"step-{STEPS_PER_EPOCH:06d}\n"
    check_equal(run, uninterrupted(*flags))


def test_killed_and_resumed_by_hand(tmp_path: Path) -> None:
    """The same without a warm process, and continued without naming the settings."""
    settings, run = write_settings(tmp_path / "settings.yaml"), tmp_path / "run"
    child = start(str(settings), "--out", str(run))
    child.wait_for_step(run, STEPS_PER_EPOCH + 3)
    child.send(signal.SIGKILL)
    assert child.wait().code == -signal.SIGKILL
    done = train("--resume", "--out", str(run))
    assert done.code == 0, done
    check_equal(run, uninterrupted())
