"""D5, in training: a loader worker is killed. Once: the run ends with the very same weights. Twice: a clean error, and
what was saved is whole. Real processes, hit from outside."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from faults.faulty_runs import require_finite_files
from faults.train_process import Child, differences, start_warm, status, train, write_settings
from vitscope.core.errors import EXIT_DATA, EXIT_DONE
from vitscope.train.checkpoints.store import Checkpoints

LIMIT_S = 60.0

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="asks Linux for a process's children")


def settings(folder: Path) -> str:
    changes = {
        "data": {"batch_size": 10, "loader": "worker", "workers": 2},
        "loop": {"epochs": 1},
        "checkpoint": {"every_steps": 20},
    }
    return str(write_settings(folder / "settings.yaml", changes))


def workers_of(child: Child) -> list[int]:
    text = " ".join(path.read_text() for path in Path(f"/proc/{child.pid}/task").glob("*/children"))
    return sorted(int(word) for word in text.split())


def steps_of(run: Path) -> int:
    """Steps logged so far."""
    path = run / "metrics.jsonl"
    return path.read_bytes().count(b'"train/grad_norm"') if path.exists() else 0


def kill_a_worker(child: Child, run: Path, *, not_before: int) -> int:
    """Once that many steps are made. Its process number."""
    deadline = time.monotonic() + LIMIT_S
    while steps_of(run) < not_before:
        assert not child.has_ended(), child.wait()
        assert time.monotonic() < deadline
        time.sleep(0.002)
    victim = workers_of(child)[0]
    os.kill(victim, signal.SIGKILL)
    return victim


def wait_for_line(path: Path, words: str, child: Child) -> None:
    deadline = time.monotonic() + LIMIT_S
    while words not in path.read_text():
        assert not child.has_ended(), child.wait()
        assert time.monotonic() < deadline
        time.sleep(0.002)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run undisturbed."""
    folder = tmp_path_factory.mktemp("sound")
    assert train(settings(folder), "--out", str(folder / "run")).code == EXIT_DONE
    return folder / "run"


def test_killed_once_the_run_is_the_same(tmp_path: Path, sound: Path) -> None:
    yaml, run = settings(tmp_path), tmp_path / "run"
    child = start_warm(yaml, "--out", str(run))
    victim = kill_a_worker(child, run, not_before=10)
    ended = child.wait()
    assert ended.code == EXIT_DONE, ended
    assert f"worker (pid {victim}) was killed by signal SIGKILL: started new workers, going on at batch" in ended.err
    assert differences(run, sound) == []


def test_killed_twice_it_ends_cleanly_and_can_be_resumed(tmp_path: Path, sound: Path) -> None:
    yaml, run = settings(tmp_path), tmp_path / "run"
    child = start_warm(yaml, "--out", str(run))
    kill_a_worker(child, run, not_before=10)
    wait_for_line(run / "train.log", "started new workers", child)
    kill_a_worker(child, run, not_before=steps_of(run) + 12)
    ended = child.wait()
    assert ended.code == EXIT_DATA, ended
    assert "Traceback" not in ended.err
    assert "was killed by signal SIGKILL, the second time in this epoch" in ended.err
    assert "to do: give fewer workers (--data.workers)" in ended.err
    assert status(run)["state"] == "failed"
    newest = Checkpoints(run / "checkpoints", keep=2).newest()
    assert newest is not None
    require_finite_files(run)
    assert json.loads((newest.path / "meta.json").read_text())["step"] % 20 == 0

    assert train(yaml, "--out", str(run), "--resume").code == EXIT_DONE
    assert differences(run, sound) == []
