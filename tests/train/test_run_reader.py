"""`vitscope.read_run`: what a viewer sees of a run that works, has ended, was killed, or lies in pieces."""

from __future__ import annotations

import json
import math
import os
import time
from pathlib import Path
from typing import Any

import pytest
from tiny_runs import tiny

import vitscope
from vitscope.core.errors import UsageError
from vitscope.core.run_folder import RunFolder
from vitscope.core.run_view import RunView, read_run


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run", name="run")


def evaluated(run: RunFolder, key: str, values: list[float], best: tuple[int, ...] = ()) -> None:
    """An evaluation every 10 steps; those after the steps `best` became the model."""
    for number, value in enumerate(values, start=1):
        mark = {"best": True} if 10 * number in best else {}
        run.metrics.append({"step": 10 * number, "epoch": number, key: value, **mark})


def content(folder: Path) -> dict[str, tuple[bytes, int]]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def test_a_finished_run_is_seen_whole(tmp_path: Path, no_pictures: None) -> None:
    config = tiny(loop={"epochs": 3}, data={"batch_size": 36})
    done = vitscope.fit(config, out=tmp_path / "run", quiet=True)
    before = content(tmp_path)
    seen = vitscope.read_run(tmp_path / "run")
    assert content(tmp_path) == before  # looking leaves no trace

    assert (seen.state, seen.is_alive, seen.problems) == ("finished", False, ())
    assert seen.status is not None
    assert seen.status["step"] == 6
    assert seen.rows == done.metrics
    steps, losses = seen.column("train/loss")
    assert steps == [1, 2, 3, 4, 5, 6]
    assert losses == [row["train/loss"] for row in done.metrics if "train/loss" in row]
    assert seen.column("val/accuracy")[0] == [2, 4, 6]
    assert seen.best == done.best
    assert seen.best is not None
    assert seen.test == done.test
    assert seen.test is not None
    assert seen.config is not None
    assert seen.config["loop"]["epochs"] == 3
    wanted = {"step", "epoch", "time", "train/loss", "train/lr", "train/skipped", "val/loss", "test/accuracy"}
    assert wanted <= set(seen.columns)


def test_a_path_may_be_text_or_lie_at_home(tmp_path: Path, run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert read_run(str(run.path)).path == run.path
    assert read_run("~/run").path == run.path


def test_a_run_at_work_is_alive_and_one_that_was_killed_is_not(run: RunFolder) -> None:
    run.write_status("running", step=7, eta_seconds=60.0)
    seen = read_run(run.path)
    assert (seen.state, seen.is_alive) == ("running", True)
    assert seen.status is not None
    assert (seen.status["step"], seen.status["eta_seconds"]) == (7, 60.0)

    status = {**(run.read_status() or {}), "pid": 2**22 + 1}  # larger than any process number
    run.status_path.write_text(json.dumps(status))
    killed = read_run(run.path)
    assert (killed.state, killed.is_alive) == ("running", False)
    assert seen.is_alive  # a view is of its moment

    status |= {"pid": os.getpid(), "heartbeat": time.time() - 600}
    run.status_path.write_text(json.dumps(status))
    assert not read_run(run.path).is_alive


def test_half_a_line_and_garbage_are_passed_over(run: RunFolder) -> None:
    run.metrics.append({"step": 1, "epoch": 1, "train/loss": 2.0})
    with run.metrics_path.open("ab") as file:
        file.write(b"\xff\xfe garbage\n[1, 2]\n")
    run.metrics.append({"step": 2, "epoch": 1, "train/loss": 1.0})
    with run.metrics_path.open("ab") as file:
        file.write(b'{"step": 3, "epoch": 1, "train/lo')
    seen = read_run(run.path)
    assert seen.column("train/loss") == ([1, 2], [2.0, 1.0])
    assert seen.problems == (
        "metrics.jsonl: lines that are no rows: 2",
    )  # half a line is no problem: it is being written


def test_nan_is_a_number_and_text_is_none(run: RunFolder) -> None:
    run.metrics.append({"step": 1, "epoch": 1, "train/loss": math.nan, "note": "warm", "flag": True, "gone": None})
    run.metrics.append({"step": 2, "epoch": 1, "train/loss": -math.inf})
    assert '"NaN"' in run.metrics_path.read_text()
    seen = read_run(run.path)
    steps, losses = seen.column("train/loss")
    assert steps == [1, 2]
    assert math.isnan(losses[0])
    assert losses[1] == -math.inf
    assert seen.columns == ["step", "epoch", "time", "train/loss"]
    assert seen.column("note") == seen.column("flag") == seen.column("gone") == seen.column("nowhere") == ([], [])


@pytest.mark.parametrize("monitor", ["val/accuracy", "val/loss"])
def test_best_is_the_last_row_marked_so(run: RunFolder, monitor: str) -> None:
    """Not the largest nor the smallest: a model that the disk did not take is no best, however good it was."""
    run.config_path.write_text(f"loop:\n  monitor: {monitor}\n")
    evaluated(run, monitor, [0.5, math.nan, 0.8, 0.9, 0.1, math.inf, 0.7], best=(10, 30))
    best = read_run(run.path).best
    assert best is not None
    assert best["step"] == 30


def test_evaluations_that_are_not_marked_are_no_best(run: RunFolder) -> None:
    evaluated(run, "val/accuracy", [0.5, 0.9])
    run.metrics.append({"step": 30, "epoch": 3, "val/accuracy": 0.9, "best": False})
    run.metrics.append({"step": 30, "epoch": 3, "val/accuracy": 0.9, "best": "true"})
    assert read_run(run.path).best is None


def test_without_an_evaluation_there_is_no_best(run: RunFolder) -> None:
    run.metrics.append({"step": 1, "epoch": 1, "train/loss": 2.0})
    seen = read_run(run.path)
    assert (seen.best, seen.test) == (None, None)


def test_steps_taken_anew_replace_the_old_ones_in_a_column(run: RunFolder) -> None:
    for step, loss in ((1, 2.0), (2, 1.5), (3, 90.0), (4, 99.0), (3, 1.2), (4, 1.1)):
        run.metrics.append({"step": step, "epoch": 1, "train/loss": loss})
    seen = read_run(run.path)
    assert seen.column("train/loss") == ([1, 2, 3, 4], [2.0, 1.5, 1.2, 1.1])
    assert len(seen.rows) == 6


def test_an_evaluation_training_went_back_behind_is_not_the_best(run: RunFolder) -> None:
    evaluated(run, "val/accuracy", [0.5, 0.9], best=(10, 20))
    run.metrics.append({"step": 20, "epoch": 2, "val/accuracy": 0.4})
    best = read_run(run.path).best
    assert best is not None
    assert best["val/accuracy"] == 0.5


@pytest.mark.parametrize("kept", ["status.json", "metrics.jsonl", "config.yaml"])
def test_each_file_alone_is_a_run(run: RunFolder, kept: str) -> None:
    run.metrics.append({"step": 1, "epoch": 1, "train/loss": 2.0})
    run.config_path.write_text("loop:\n  epochs: 5\n")
    for path in (run.status_path, run.metrics_path, run.config_path):
        if path.name != kept:
            path.unlink()
    seen = read_run(run.path)
    assert (seen.status is not None) == (kept == "status.json")
    assert bool(seen.rows) == (kept == "metrics.jsonl")
    assert (seen.config is not None) == (kept == "config.yaml")
    assert seen.problems == ()  # missing is not damaged
    assert not seen.is_alive or kept == "status.json"


@pytest.mark.parametrize("damage", [b"", b"{", b"\xff\xfe\x00", b"- 1\n- 2\n", b"a: [1, 2", b"!!python/object:os.x {}"])
def test_damaged_files_are_named_not_raised(run: RunFolder, damage: bytes) -> None:
    run.metrics.append({"step": 1, "epoch": 1, "val/accuracy": 0.5, "best": True})
    run.status_path.write_bytes(damage)
    run.config_path.write_bytes(damage)
    seen = read_run(run.path)
    assert (seen.status, seen.state, seen.config, seen.is_alive) == (None, None, None, False)
    assert [problem.partition(":")[0] for problem in seen.problems] == ["status.json", "config.yaml"]
    assert seen.best is not None  # by the metric that is monitored where the settings do not say


@pytest.mark.parametrize("loop", ["5", "[1]", "{monitor: 3, monitor_mode: [x]}"])
def test_strange_settings_do_not_hide_the_best(run: RunFolder, loop: str) -> None:
    run.config_path.write_text(f"loop: {loop}\n")
    evaluated(run, "val/accuracy", [0.5, 0.9], best=(10, 20))
    best = read_run(run.path).best
    assert best is not None
    assert best["step"] == 20


def test_files_that_are_folders_are_named(run: RunFolder) -> None:
    for path in (run.metrics_path, run.config_path):
        path.mkdir()
    seen: Any = read_run(run.path)
    assert (seen.rows, seen.config) == ([], None)
    assert len(seen.problems) == 2


def test_what_is_no_run_is_refused_with_the_nearest(run: RunFolder) -> None:
    with pytest.raises(UsageError, match="does not exist") as caught:
        read_run(run.path.with_name("rum"))
    assert caught.value.fix == f"did you mean '{run.path}'?"
    with pytest.raises(UsageError, match="is not a run folder"):
        read_run(run.path.parent)


def test_a_view_shows_what_it_is(run: RunFolder) -> None:
    run.metrics.append({"step": 1, "epoch": 1})
    assert repr(read_run(run.path)) == f"RunView({str(run.path)!r}, starting, 1 rows)"
    assert RunView is vitscope.RunView
