"""R1 for experiments: kill -9 and SIGTERM in the middle of a round, then resumed: every network is an undisturbed
experiment's, bit for bit."""

from __future__ import annotations

import signal
from pathlib import Path

from faults import train_process
from faults.train_process import Child, Ended, Trap, write_settings
from sparse.tiny_experiments import differences

CHANGES = {
    "data": {"name": "synthetic:size=8,count=120,classes=4,channels=1", "batch_size": 6},
    "checkpoint": {"every_steps": 2},
}
"""12 steps an epoch or more; a kill costs two of them."""
FLAGS = ("--rate", "0.5", "--units", "neurons", "--score-batches", "10", "--timing", "none", "--epochs", "3")


def sparsify(*args: str) -> Child:
    """`vitscope sparsify ARGS` in a process of its own that need not import torch."""
    papers = train_process._new_folder()
    order = {"args": ["sparsify", *args], "papers": str(papers), "traps": list[Trap](), "environment": {}}
    return Child(train_process._forker().ask(order), papers)


def hit(child: Child, number: int, run: Path, step: int) -> Ended:
    """A signal as soon as the metrics of a run inside the experiment hold this step."""
    child.wait_for_step(run, step)
    child.send_to_all(number)
    return child.wait()


def test_killed_in_the_growing_run_and_terminated_in_the_small_one(tmp_path: Path) -> None:
    settings = write_settings(tmp_path / "settings.yaml", CHANGES)
    whole = sparsify(str(settings), *FLAGS, "--out", str(tmp_path / "whole")).wait()
    assert whole.code == 0, whole
    words = (str(settings), *FLAGS, "--out", str(tmp_path / "x"))
    growing, small = (tmp_path / "x" / "seed-0" / "round-1" / "rsst" / name / "run" for name in ("growing", "small"))

    ended = hit(sparsify(*words), signal.SIGKILL, growing, 7)
    assert ended.code == -signal.SIGKILL, ended
    assert not small.exists()
    steps = len((tmp_path / "whole/seed-0/round-1/rsst/growing/run/metrics.jsonl").read_text().splitlines())
    ended = hit(sparsify(*words, "--resume"), signal.SIGTERM, small, steps + 2)
    assert ended.code == 143, ended
    assert "everything is saved" in ended.err
    assert "Traceback" not in ended.err
    assert f"--out {tmp_path / 'x'} --resume" in ended.out
    done = sparsify(*words, "--resume").wait()
    assert done.code == 0, done
    assert differences(tmp_path / "x", tmp_path / "whole") == []
    assert (tmp_path / "x" / "report.html").exists()
