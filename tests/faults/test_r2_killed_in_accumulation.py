"""R2: kill -9 between two parts of a batch whose gradients are added up. The whole group is done again, equal."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from faults.train_process import (
    STEPS,
    STEPS_PER_EPOCH,
    Trap,
    differences,
    newest_checkpoint,
    rows,
    train,
    uninterrupted,
    write_settings,
)

PARTS = ("--loop.micro-batch", "20")
GROUP = 4
"""72 pictures: 20, 20, 20 and 12."""


@pytest.mark.parametrize(
    ("step", "part"), [(1, 2), (7, 4), (STEPS_PER_EPOCH, 3), (STEPS_PER_EPOCH + 5, 2)], ids=lambda number: str(number)
)
def test_killed_within_a_group(step: int, part: int, tmp_path: Path) -> None:
    """`hits` is called once for each part, after its gradient was added."""
    settings, run = write_settings(tmp_path / "settings.yaml"), tmp_path / "run"
    trap = Trap("vitscope.train.step", "hits", (step - 1) * GROUP + part)
    killed = train(str(settings), "--out", str(run), *PARTS, traps=(trap,))
    assert killed.code == -signal.SIGKILL, killed
    taken = [row["step"] for row in rows(run) if "train/loss" in row] if (run / "metrics.jsonl").exists() else []
    assert taken == list(range(1, step))
    assert int(newest_checkpoint(run).name[-6:]) == (step - 1) // 4 * 4
    done = train("--resume", "--out", str(run))
    assert done.code == 0, done
    assert differences(run, uninterrupted(*PARTS)) == []
    assert [row["step"] for row in rows(run) if "train/loss" in row] == list(range(1, STEPS + 1))


def test_a_group_is_not_taken_in_one_piece() -> None:
    """The parts' sum is rounded in another way and has other dropout; else the case above would prove nothing."""
    assert "weights/head.weight" in differences(uninterrupted(), uninterrupted(*PARTS))
