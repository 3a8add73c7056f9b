"""R4, training's half: the disk takes no more checkpoints. Training says so and goes on, and ends cleanly after three.

Played by a program of its own (this file, run as a script), to which the system allows only small files for a while.
"""

from __future__ import annotations

import errno
import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from faults.faulty_runs import VIT, differing, final, no_pictures, require_finite_files, rows_of, settings, stored
from vitscope.core.errors import EXIT_FAILED, VitscopeError
from vitscope.core.metrics_file import MetricsFile
from vitscope.train.checkpoints.store import Checkpoints
from vitscope.train.config import TrainConfig
from vitscope.train.fit import fit
from vitscope.train.show.observer import Observer
from vitscope.train.state import TrainState
from vitscope.weights.load import load_model

EPOCH = 19
SMALL = 15_000
"""Bytes: more than metrics and log come to, less than the weights do."""
CASES = {"never": (), "passing": (7, 16), "for ever": (7, 10_000), "at the best": (18, 20)}
"""The steps after which files are limited and free again. Checkpoints are due after steps 5, 10, 15, 19 (the epoch's
end, with the model), 20, 25, 30, 35 and 38."""


def config() -> TrainConfig:
    return settings(
        {**VIT, "embed_dim": 32},
        data={"batch_size": 64},
        checkpoint={"every_steps": 5, "keep": 2},
        # The first epoch is the best: the smaller accuracy.
        loop={"monitor": "val/accuracy", "monitor_mode": "min"},
    )


class Limit:
    """A hook: the system refuses files over SMALL bytes between two steps."""

    def __init__(self, steps: tuple[int, ...]) -> None:
        self.steps, self.taken = steps, 0

    def __call__(self, state: TrainState) -> None:
        self.taken += 1
        if self.taken in self.steps:
            limit_files(SMALL if self.taken == self.steps[0] else resource.RLIM_INFINITY)


def limit_files(count: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (count, resource.RLIM_INFINITY))


class Heard(Observer):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)


def play(folder: Path, name: str) -> dict[str, Any]:
    heard, run = Heard(), folder / name
    found: dict[str, Any] = {"heard": heard.lines}
    try:
        with no_pictures():
            done = fit(config(), out=run, quiet=True, after_step=[Limit(CASES[name])], observers=[heard])
        found |= {"state": done.state}
    except VitscopeError as error:
        found |= {"what": error.what, "where": error.where, "fix": error.fix, "exit_code": error.exit_code}
    limit_files(resource.RLIM_INFINITY)
    return found


def main() -> None:
    print(json.dumps({name: play(Path(sys.argv[1]), name) for name in CASES}))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("full")


@pytest.fixture(scope="module")
def played(folder: Path) -> dict[str, dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, __file__, str(folder)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parent.parent)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def warnings_in(found: dict[str, Any]) -> list[str]:
    return [line for line in found["heard"] if line.startswith("warning: ")]


def test_room_again_in_time_and_nothing_is_lost(played: dict[str, dict[str, Any]], folder: Path) -> None:
    found = played["passing"]
    assert found["state"] == "finished"
    told = warnings_in(found)
    assert len(told) == 2
    for step, line in zip((10, 15), told, strict=True):
        assert line.startswith(f"warning: checkpoint of step {step} not saved (")
        assert os.strerror(errno.EFBIG) in line
        assert "it needs" in line
        assert line.endswith("; going on")
        assert line in (folder / "passing" / "train.log").read_text()
    assert differing(final(folder / "passing"), final(folder / "never")) == []
    assert played["never"]["state"] == "finished"
    assert warnings_in(played["never"]) == []


def test_three_in_a_row_end_the_run_cleanly_and_it_can_be_resumed(
    played: dict[str, dict[str, Any]], folder: Path
) -> None:
    found, run = played["for ever"], folder / "for ever"
    assert found["exit_code"] == EXIT_FAILED
    assert found["what"].startswith("3 checkpoints in a row could not be saved: ")
    assert os.strerror(errno.EFBIG) in found["what"]
    assert found["where"] == str(run / "checkpoints")
    assert "--resume" in found["fix"]
    told = warnings_in(found)
    assert [line.split(" not saved")[0] for line in told if "checkpoint of step" in line] == [
        f"warning: checkpoint of step {step}" for step in (10, 15, 19)
    ]
    assert any("the model cannot be saved" in line for line in told)
    assert json.loads((run / "status.json").read_text())["state"] == "failed"
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == ["last", "step-000000", "step-000005"]
    assert not (run / "model").exists()
    assert not list(run.rglob("*.tmp"))
    assert stored(run, 5).step == 5
    assert [row["step"] for row in rows_of(run)] == list(range(1, EPOCH + 1))
    require_finite_files(run)

    with no_pictures():  # room was made
        assert fit(config(), out=run, quiet=True, resume=True).state == "finished"
    assert [row["step"] for row in rows_of(run)] == list(range(1, 2 * EPOCH + 1))
    assert differing(final(run), final(folder / "never")) == []


def test_a_best_model_that_could_not_be_saved_is_not_called_the_best(
    played: dict[str, dict[str, Any]], folder: Path
) -> None:
    """What is in the model folder is what the run says is its best."""
    undisturbed = stored(folder / "never", 2 * EPOCH).trainer()["course"]
    assert undisturbed["best_step"] == EPOCH
    found, run = played["at the best"], folder / "at the best"
    assert found["state"] == "finished"
    told = warnings_in(found)
    assert len(told) == 2
    assert "the model cannot be saved" in told[0]
    assert "checkpoint of step 19 not saved" in told[1]
    course = stored(run, 2 * EPOCH).trainer()["course"]
    assert course["best_step"] == 2 * EPOCH
    best = Checkpoints(run / "checkpoints", keep=2).best()
    assert best is not None
    assert best.step == 2 * EPOCH
    ema = best.trainer()["hooks"]["ema"]
    assert all(bool((ema[name] == value).all()) for name, value in load_model(run / "model").state_dict().items())


def test_rows_wait_in_memory_until_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps 3 to 9 find no room, the first epoch's end among them; step 10 brings all."""
    append, calls = MetricsFile.append, [0]
    heard = Heard()

    def full(file: MetricsFile, row: dict[str, Any]) -> None:
        calls[0] += 1
        if 3 <= calls[0] <= 9:
            raise VitscopeError("cannot write metrics: No space left on device", where="there", fix="make room")
        append(file, row)

    four = settings(loop={"epochs": 3}, checkpoint={"every_steps": None})
    with no_pictures():
        fit(four, out=tmp_path / "whole", quiet=True)
        monkeypatch.setattr(MetricsFile, "append", full)
        run = fit(four, out=tmp_path / "run", quiet=True, observers=[heard])
    assert run.state == "finished"
    assert calls[0] > 9
    rows, wanted = (
        run.metrics,
        [json.loads(line) for line in (tmp_path / "whole/metrics.jsonl").read_text().splitlines()],
    )
    assert [_lasting(row) for row in rows] == [_lasting(row) for row in wanted]
    assert warnings_in({"heard": heard.lines}) == [
        "warning: cannot write metrics: No space left on device; rows wait in memory"
    ]


def _lasting(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in ("time", "train/images_per_s")}


if __name__ == "__main__":
    main()
