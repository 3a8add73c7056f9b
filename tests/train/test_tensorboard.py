"""Events are read back with TensorBoard's own reader."""

from __future__ import annotations

import logging
import math
import struct
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c

from vitscope.train.show import tensorboard
from vitscope.train.show.event_file import MOST_WAITING, EventFile, checksums
from vitscope.train.show.observer import Observers
from vitscope.train.show.tensorboard import TensorBoard, tag_of


def step_row(step: int, loss: float = 1.0) -> dict[str, Any]:
    return {
        "step": step,
        "epoch": 1,
        "time": 1e9,
        "train/loss": loss,
        "train/accuracy": 0.5,
        "train/lr": step * 1e-3,
        "train/grad_norm": 2.0,
        "train/skipped": 0.0,
    }


def epoch_row(step: int, accuracy: float) -> dict[str, Any]:
    means = {"train/loss": 9.0, "train/accuracy": 0.9, "train/images_per_s": 1000.0}
    return {"step": step, "epoch": step // 10, **means, "val/loss": 0.7, "val/accuracy": accuracy}


def read(folder: Path) -> dict[str, list[tuple[int, float]]]:
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    tags = events.Tags()["scalars"]
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in tags}


def test_every_step_every_epoch_and_the_test_are_there(tmp_path: Path) -> None:
    board = TensorBoard(tmp_path)
    for epoch in (1, 2):
        board.steps([step_row(10 * epoch - 9 + n, loss=n / 4) for n in range(10)])
        board.epoch(epoch_row(10 * epoch, accuracy=epoch / 4))
    board.epoch({"step": 20, "epoch": 2, "test/loss": 0.5, "test/accuracy": 0.75, "test/count": 360})
    board.close()
    found = read(tmp_path)
    assert found["Train/Loss"] == [(step, (step - 1) % 10 / 4) for step in range(1, 21)]
    assert [step for step, _ in found["Train/LR"]] == list(range(1, 21))
    assert found["Train/LR"][-1][1] == pytest.approx(0.02)
    assert len(found["Train/GradNorm"]) == len(found["Train/Accuracy"]) == 20
    assert found["Val/Accuracy"] == [(10, 0.25), (20, 0.5)]
    assert [step for step, _ in found["Val/Loss"]] == [10, 20]
    assert found["Test/Accuracy"] == [(20, 0.75)]
    assert found["Test/Loss"] == [(20, 0.5)]
    assert found["Train/ImagesPerS"] == [(10, 1000.0), (20, 1000.0)]
    assert not any(tag in found for tag in ("step", "epoch", "time", "Time"))


def test_a_resumed_run_forgets_what_was_made_after_its_checkpoint(tmp_path: Path) -> None:
    first = TensorBoard(tmp_path)
    first.steps([step_row(step, loss=1.0) for step in range(1, 16)])
    first.epoch(epoch_row(10, 0.5))
    first.close()
    again = TensorBoard(tmp_path, purge_step=11)
    again.steps([step_row(step, loss=2.0) for step in range(11, 14)])
    again.close()
    assert len(list(tmp_path.glob("events.out.tfevents*"))) == 2
    found = read(tmp_path)
    assert found["Train/Loss"] == [(step, 1.0) for step in range(1, 11)] + [(step, 2.0) for step in range(11, 14)]
    assert found["Val/Accuracy"] == [(10, 0.5)]


def test_going_back_to_a_checkpoint_forgets_what_was_given_up(tmp_path: Path) -> None:
    board = TensorBoard(tmp_path)
    board.steps([step_row(step, loss=1.0) for step in range(1, 8)])
    board.steps([step_row(step, loss=2.0) for step in range(4, 6)])
    board.close()
    assert read(tmp_path)["Train/Loss"] == [(1, 1.0), (2, 1.0), (3, 1.0), (4, 2.0), (5, 2.0)]


def test_nan_is_written_as_nan_and_texts_are_left_out(tmp_path: Path) -> None:
    board = TensorBoard(tmp_path)
    board.steps([{"step": 1, "epoch": 1, "train/loss": float("nan"), "train/note": "text", "train/none": None}])
    board.close()
    found = read(tmp_path)
    assert list(found) == ["Train/Loss"]
    assert math.isnan(found["Train/Loss"][0][1])


def test_an_epochs_figures_can_be_read_before_the_run_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensorboard, "FLUSH_S", 0.0)
    board = TensorBoard(tmp_path)
    board.steps([step_row(1)])
    board.epoch(epoch_row(10, 0.5))
    assert read(tmp_path)["Val/Accuracy"] == [(10, 0.5)]
    board.close()


@pytest.mark.parametrize(
    ("key", "tag"),
    [
        ("train/loss", "Train/Loss"),
        ("train/lr", "Train/LR"),
        ("train/grad_norm", "Train/GradNorm"),
        ("val/top5_accuracy", "Val/Top5Accuracy"),
        ("ema/val_loss", "EMA/ValLoss"),
        ("train/epoch_loss", "Train/EpochLoss"),
    ],
)
def test_names(key: str, tag: str) -> None:
    assert tag_of(key) == tag


def test_a_full_disk_is_found_at_once_and_leaves_the_run_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    board = TensorBoard(tmp_path)
    board._file._file.close()
    board._file._file = Path("/dev/full").open("wb", buffering=0)  # noqa: SIM115
    monkeypatch.setattr(tensorboard, "FLUSH_S", 0.0)
    observers = Observers([board])
    with caplog.at_level(logging.WARNING, logger="vitscope"):
        observers.epoch(epoch_row(10, 0.5))
        observers.epoch(epoch_row(20, 0.5))
    assert observers.watchers == []
    assert caplog.text.count("TensorBoard cannot go on") == 1
    assert "No space left" in caplog.text
    board.close()  # nothing is tried again


def test_checksums_are_tensorboards() -> None:
    contents = [b"", b"123456789", bytes(range(256)) * 3, b"987654321", b"\0" * 9, b"\xff"]
    assert checksums(contents) == [struct.pack("<I", masked_crc32c(content)) for content in contents]


def test_more_than_fits_into_memory_is_written_on_the_way(tmp_path: Path) -> None:
    board = TensorBoard(tmp_path)
    for step in range(1, 9001):
        board.steps([{"step": step, "epoch": 1, "train/loss": 1.0}])
    waiting = len(board._file._waiting)
    assert waiting < MOST_WAITING
    board.close()
    assert [step for step, _ in read(tmp_path)["Train/Loss"]] == list(range(1, 9001))


def test_a_file_sorts_behind_all_that_are_there(tmp_path: Path) -> None:
    (tmp_path / "events.out.tfevents.9999999998.other.7.0").touch()
    (tmp_path / "events.out.tfevents.odd").touch()
    file = EventFile(tmp_path)
    file.close()
    assert file.path.name.startswith("events.out.tfevents.9999999999.")
