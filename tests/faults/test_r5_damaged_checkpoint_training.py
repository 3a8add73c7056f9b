"""R5, training's half: the last checkpoint is damaged. It is said, the one before is used, and the end is the same."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from faults.faulty_runs import BATCHES, differing, final, no_pictures, rows_of, settings
from faults.train_process import everything, train
from vitscope.core.errors import EXIT_FAILED
from vitscope.train.checkpoints.store import CheckpointError, Checkpoints
from vitscope.train.config import TrainConfig
from vitscope.train.fit import fit
from vitscope.train.show.observer import Observer
from vitscope.train.signals import StopFlag

STOPPED = 6
"""The step after which the run was stopped; checkpoints are kept of 4, 5 and 6."""
NEWEST = f"step-{STOPPED:06d}"


def config() -> TrainConfig:
    return settings(checkpoint={"every_steps": 1, "keep": 3})


@pytest.fixture(autouse=True)
def quick() -> Any:
    with no_pictures():
        yield


class StopAfter(Observer):
    def __init__(self, step: int, stop: StopFlag) -> None:
        self.step, self.stop = step, stop

    def steps(self, rows: list[dict[str, Any]]) -> None:
        if rows[-1]["step"] == self.step - 1:  # asked before it is told of a step: the next one is the last
            self.stop.raise_flag(signal.SIGTERM)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that went to its end."""
    folder = tmp_path_factory.mktemp("runs") / "sound"
    with no_pictures():
        fit(config(), out=folder, quiet=True)
    return folder


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, stopped in its second epoch."""
    folder, stop = tmp_path_factory.mktemp("runs") / "stopped", StopFlag()
    with no_pictures():
        fit(config(), out=folder, quiet=True, stop=stop, observers=[StopAfter(STOPPED, stop)])
    assert Checkpoints(folder / "checkpoints", keep=3).open("last").step == STOPPED
    return folder


@pytest.fixture
def run(stopped: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stopped, tmp_path / "run"))


def truncated(checkpoint: Path) -> str:
    path = checkpoint / "trainer.pt"
    path.write_bytes(path.read_bytes()[:-100])
    return "trainer.pt"


def flipped(checkpoint: Path) -> str:
    path = checkpoint / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-1000] ^= 0x10
    path.write_bytes(content)
    return "sha256"


def without_weights(checkpoint: Path) -> str:
    (checkpoint / "model.safetensors").unlink()
    return "model.safetensors"


def with_other_meta(checkpoint: Path) -> str:
    path = checkpoint / "meta.json"
    path.write_text(path.read_text().replace('"epoch": 1', '"epoch": 0'))
    return "meta.json"


def not_complete(checkpoint: Path) -> None:
    """As a killed save leaves it: nothing worth a word."""
    (checkpoint / "COMPLETE").unlink()


DAMAGES = [truncated, flipped, without_weights, with_other_meta, not_complete]


@pytest.mark.parametrize("damage", DAMAGES)
def test_the_one_before_is_used_and_the_end_is_the_same(
    damage: Callable[[Path], str | None], run: Path, sound: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    word = damage(run / "checkpoints" / NEWEST)
    assert fit(config(), out=run, resume=True).state == "finished"
    said = capfd.readouterr().err
    assert f"resuming after step {STOPPED - 1} (epoch 2, batch {STOPPED - 1 - BATCHES})" in said
    if word is not None:
        told = next(line for line in said.splitlines() if line.startswith("warning: "))
        assert f"the checkpoint {NEWEST} is passed over: " in told
        assert word in told
        assert told.removeprefix("warning: ") in (run / "train.log").read_text()
    assert differing(final(run), final(sound)) == []
    rows, wanted = rows_of(run), rows_of(sound)
    assert [row["step"] for row in rows] == list(range(1, 2 * BATCHES + 1))
    assert [row["train/loss"] for row in rows] == [row["train/loss"] for row in wanted]


def test_an_undamaged_one_is_used(run: Path, sound: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert fit(config(), out=run, resume=True).state == "finished"
    said = capfd.readouterr().err
    assert f"resuming after step {STOPPED} " in said
    assert "warning" not in said
    assert differing(final(run), final(sound)) == []


def test_all_but_the_first_are_damaged(run: Path, sound: Path, capfd: pytest.CaptureFixture[str]) -> None:
    flipped(run / "checkpoints" / NEWEST)
    truncated(run / "checkpoints" / "step-000005")
    fit(config(), out=run, resume=True)
    said = capfd.readouterr().err
    assert [line for line in said.splitlines() if line.startswith("warning: ")] != []
    assert "step-000006 is passed over" in said
    assert "step-000005 is passed over" in said
    assert "resuming after step 4 (epoch 2, batch 0)" in said
    assert differing(final(run), final(sound)) == []


def test_none_is_left_and_nothing_of_the_run_is_lost(run: Path) -> None:
    for checkpoint in (run / "checkpoints").glob("step-*"):
        truncated(checkpoint)
    before = everything(run)
    with pytest.raises(CheckpointError, match="no checkpoint that can be used") as caught:
        fit(config(), out=run, resume=True, quiet=True)
    assert f"--from {run}" in str(caught.value.fix)
    assert everything(run) == before


@pytest.mark.parametrize("damage", [truncated, flipped, without_weights, with_other_meta])
@pytest.mark.parametrize("wish", [NEWEST, "path"])
def test_the_very_one_that_is_asked_for_is_refused(wish: str, damage: Callable[[Path], str], run: Path) -> None:
    word = damage(run / "checkpoints" / NEWEST)
    before = everything(run / "checkpoints")
    metrics = (run / "metrics.jsonl").read_bytes()
    wanted = run / "checkpoints" / NEWEST if wish == "path" else NEWEST
    with pytest.raises(CheckpointError) as caught:
        fit(config(), out=run, resume_from=wanted, quiet=True)
    assert caught.value.exit_code == EXIT_FAILED
    assert word in str(caught.value)
    assert caught.value.where
    assert caught.value.fix
    assert everything(run / "checkpoints") == before
    assert (run / "metrics.jsonl").read_bytes() == metrics


def test_as_a_process(run: Path) -> None:
    flipped(run / "checkpoints" / NEWEST)
    before = everything(run / "checkpoints")
    ended = train("--out", str(run), "--resume-from", NEWEST)
    assert ended.code == EXIT_FAILED, ended
    assert "Traceback" not in ended.err
    *_, what, where, fix = ended.err.strip().splitlines()
    assert what.startswith("error: ")
    assert "sha256" in what
    assert where.startswith("where: ")
    assert fix.startswith("to do: ")
    assert everything(run / "checkpoints") == before
