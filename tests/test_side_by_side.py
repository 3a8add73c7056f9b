"""`bench/side_by_side.py`: plans whose commands run at the same time, within a limit; and the plans there are."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vitscope.cli.main import main
from vitscope.sparse import sparsify as experiments

BENCH = Path(__file__).parents[1] / "bench"
PLANS = sorted((BENCH / "plans").glob("*.txt"))
SAVES = """
import pathlib, signal, sys, time
saved = pathlib.Path("saved")
def save(*_):
    saved.write_text("all of it")
    sys.exit(143)
signal.signal(signal.SIGTERM, save)
if saved.exists():
    sys.exit(0)
pathlib.Path("begun").touch()
time.sleep(60)
"""
"""Goes on where it was, as a run does."""


def side_by_side(out: Path, plan: str, *flags: str) -> subprocess.CompletedProcess[str]:
    out.mkdir(exist_ok=True)
    (out / "plan.txt").write_text(plan)
    return subprocess.run(
        [sys.executable, str(BENCH / "side_by_side.py"), str(out / "plan.txt"), "--out", str(out), *flags],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def states(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line.split("|")[2].strip() for line in done.stdout.splitlines()[2:]]


def test_groups_wait_for_each_other_and_what_is_done_is_not_done_again(tmp_path: Path) -> None:
    plan = "# two, then one\necho one >> order\n\necho one >> order\t # again\n---\necho two >> order\n---\n"
    done = side_by_side(tmp_path, plan)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "order").read_text().split() == ["one", "one", "two"]
    assert states(done) == ["done"] * 3
    again = side_by_side(tmp_path, plan)
    assert states(again) == ["done"] * 3
    assert (tmp_path / "order").read_text().split() == ["one", "one", "two"]


def test_commands_run_at_the_same_time_as_many_as_are_wanted(tmp_path: Path) -> None:
    """Each waits for the other: in turns they would never end."""
    meets = "touch {0}; for i in $(seq 100); do [ -e {1} ] && exit 0; sleep 0.1; done; exit 1"
    plan = "\n".join(meets.format(*pair) for pair in (("a", "b"), ("b", "a")))
    assert states(side_by_side(tmp_path / "both", plan, "--at-once", "2")) == ["done", "done"]
    alone = "mkdir only || exit 1; sleep {}; rmdir only"
    plan = "\n".join(alone.format(wait) for wait in (0.1, 0.11, 0.12))
    assert states(side_by_side(tmp_path / "one", plan, "--at-once", "1")) == ["done"] * 3


def test_what_the_limit_stops_has_saved_itself_and_goes_on(tmp_path: Path) -> None:
    """Also where a shell stands between, which dies of the signal at once."""
    (tmp_path / "saves.py").write_text(SAVES)
    plan = f"true && {shlex.quote(sys.executable)} saves.py; exit $?\n---\ntouch after"
    stopped = side_by_side(tmp_path, plan, "--limit-seconds", "3")
    assert (tmp_path / "begun").exists()
    assert (tmp_path / "saved").read_text() == "all of it"
    assert states(stopped) == ["to do", "to do"]
    assert stopped.returncode == 0
    assert not (tmp_path / "after").exists()
    took = json.loads((tmp_path / "side_by_side.json").read_text())["seconds"]
    goes_on = side_by_side(tmp_path, plan)
    assert states(goes_on) == ["done", "done"], goes_on.stderr
    assert (tmp_path / "after").exists()
    both = json.loads((tmp_path / "side_by_side.json").read_text())["seconds"]
    assert all(both[command] > seconds for command, seconds in took.items())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_it_as_the_limit_does(number: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "saves.py").write_text(SAVES)
    (tmp_path / "plan.txt").write_text(f"{shlex.quote(sys.executable)} saves.py")
    words = [sys.executable, str(BENCH / "side_by_side.py"), str(tmp_path / "plan.txt"), "--out", str(tmp_path)]
    with subprocess.Popen(words, stderr=subprocess.PIPE) as process:
        patience = time.monotonic() + 30
        while not (tmp_path / "begun").exists() and time.monotonic() < patience:
            time.sleep(0.05)
        process.send_signal(number)
        process.communicate(timeout=30)
    assert process.returncode == 128 + number
    assert (tmp_path / "saved").read_text() == "all of it"


def test_a_failure_is_named_and_what_builds_on_it_is_left(tmp_path: Path) -> None:
    done = side_by_side(tmp_path, "echo no such thing; exit 3\ntouch beside\n---\ntouch after")
    assert done.returncode == 1
    assert "01 failed (exit 3)" in done.stderr
    assert "no such thing" in done.stderr
    assert states(done) == ["failed", "done", "to do"]
    assert not (tmp_path / "after").exists()
    twice = side_by_side(tmp_path / "twice", "echo 1\necho 1")
    assert twice.returncode == 1
    assert "the plan has a command twice" in twice.stderr


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_plans_are_understood(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every command, with a recipe for the run it begins with, which only the plan makes."""
    monkeypatch.syspath_prepend(str(BENCH))
    monkeypatch.chdir(tmp_path)
    import side_by_side as bench  # pyright: ignore[reportMissingImports]

    asked: list[Any] = []
    monkeypatch.setattr(
        experiments,
        "sparsify",
        lambda config, sparse, **given: (
            asked.append(SimpleNamespace(config=config, sparse=sparse, out=given["out"]))
            or experiments.Experiment(Path(given["out"]), "stopped", 0, [])
        ),
    )
    made: set[str] = set()
    for command in (command for stage in bench.stages(path.read_text()) for command in stage):
        words = shlex.split(command)
        if words[0] == "mv":
            assert {Path(word).parts[0] for word in words[1:]} <= made, f"{command}: nothing above makes it"
            continue
        assert words[0] == "vitscope"
        assert "--resume" in words, f"{command}: it would not go on where it was"
        if words[1] == "train":
            assert main([*words[1:], "--print-config"]) == 0, capsys.readouterr().err
        elif words[2] == "--resume":  # of an experiment there is, whose seeds have come together
            assert words[words.index("--out") + 1] in made
            continue
        else:
            recipe = words[2].startswith("cifar10_")
            if not recipe:
                assert words[2].format(seed=words[words.index("--seed") + 1]) in made
            assert main(["sparsify", words[2] if recipe else "cifar10_vit_tiny", *words[3:]]) == 0
        made.add(words[words.index("--out") + 1])
    assert len(asked) >= 3
    assert all(os.fspath(call.out) in made for call in asked)
