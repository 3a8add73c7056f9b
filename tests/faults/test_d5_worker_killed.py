"""D5: a loader worker is killed or hangs. Once: the epoch goes on, not a pixel other. Twice: a clean error. No hang.

The cases are played by a program of their own (this file, run as a script), so that a hang cannot take the tests along.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from vitscope.core.errors import DataError
from vitscope.data.config import augmentation, half_normalised
from vitscope.data.loaders.loader import Batch
from vitscope.data.loaders.worker import WorkerLoader
from vitscope.data.sources.source import Source, Stored

BATCHES = 12
ONCE = ("once", "all", "last", "between epochs", "hang", "hang ahead")
TWICE = ("twice", "hang twice")


class Files(Source):
    """Pictures that take a moment each, so that workers are always in the middle of one."""

    kind = "slow files"

    def __init__(self) -> None:
        super().__init__("slow", np.arange(4 * BATCHES) % 3, ["a", "b", "c"])
        file = io.BytesIO()
        Image.fromarray(np.random.default_rng(0).integers(0, 256, (20, 24, 3), dtype=np.uint8)).save(file, "JPEG")
        self.file = file.getvalue()

    def read(self, index: int) -> Stored:
        time.sleep(0.005)
        return self.file

    def where(self, index: int) -> str:
        return f"slow/{index}"

    def content_hash(self) -> str:
        return "0"


def make(workers: int, timeout_s: float) -> WorkerLoader:
    source = Files()
    return WorkerLoader(
        source,
        np.arange(len(source)),
        preprocess=half_normalised((16, 16), 3),
        augment=augmentation("medium", 16),
        batch_size=4,
        seed=0,
        device=torch.device("cpu"),
        training=True,
        finish=lambda pixels, keys: pixels.float(),
        workers=workers,
        timeout_s=timeout_s,
    )


def digest(batch: Batch) -> str:
    return hashlib.sha256(b"".join(part.numpy().tobytes() for part in batch)).hexdigest()


def scenario(name: str) -> dict[str, Any]:
    """What a training loop sees."""
    blow = signal.SIGSTOP if name.startswith("hang") else signal.SIGKILL
    loader = make(workers=2, timeout_s=1.5 if blow == signal.SIGSTOP else 60)
    hit_at = {
        "once": (2,),
        "all": (2,),
        "last": (BATCHES - 1,),
        "twice": (2, 6),
        "hang": (2,),
        "hang ahead": (2,),
        "hang twice": (2, 6),
    }
    epochs, pids = [], []
    if name == "between epochs":
        list(loader.epoch(9))
        pids.append(strike(loader, blow))
        time.sleep(0.2)
    for epoch in range(2):
        found: list[str] = []
        for number, batch in enumerate(loader.epoch(epoch)):
            found.append(digest(batch))
            if epoch == 0 and number in hit_at.get(name, ()):
                if name == "hang ahead":  # with batches of its own sent and not yet fetched out of its memory
                    time.sleep(0.5)
                pids.append(strike(loader, blow, all_of_them=name == "all"))
                deadline = time.monotonic() + 0.3
                while time.monotonic() < deadline:  # the training step: torch's own handler would raise here
                    sum(range(100))
        epochs.append(found)
    workers = [process.pid for process in loader._stream.processes]  # type: ignore[union-attr]
    loader.close()
    return {"epochs": epochs, "struck": pids, "left": [pid for pid in pids + workers if runs(pid)]}


def strike(loader: WorkerLoader, blow: signal.Signals, all_of_them: bool = False) -> int:
    processes = loader._stream.processes  # type: ignore[union-attr]
    for process in processes if all_of_them else processes[:1]:
        os.kill(process.pid, blow)
    return processes[0].pid


def runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture(scope="module")
def played() -> dict[str, dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, __file__, *ONCE, *TWICE],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def undisturbed() -> list[list[str]]:
    loader = make(workers=0, timeout_s=60)
    return [[digest(batch) for batch in loader.epoch(epoch)] for epoch in range(2)]


@pytest.mark.parametrize("name", ONCE)
def test_lost_once_the_epoch_goes_on_with_the_same_batches(
    name: str, played: dict[str, dict[str, Any]], undisturbed: list[list[str]]
) -> None:
    found = played[name]
    assert found.get("epochs") == undisturbed, found
    assert found["left"] == []
    assert len(found["log"]) == 1
    assert "started new workers, going on at batch" in found["log"][0]
    if name.startswith("hang"):
        assert "sent anything for 1.5 s" in found["log"][0]
    else:
        assert f"worker (pid {found['struck'][0]}) was killed by signal SIGKILL" in found["log"][0]
    if name == "last":  # there was nothing left to lose in that epoch; the next one noticed
        assert "at batch 0 of epoch 1" in found["log"][0]


@pytest.mark.parametrize("name", TWICE)
def test_lost_twice_is_an_error_that_says_what_to_do(name: str, played: dict[str, dict[str, Any]]) -> None:
    found = played[name]
    assert len(found["log"]) == 1
    assert found["exit_code"] == 3
    assert ("sent anything for 1.5 s" if name == "hang twice" else "was killed by signal SIGKILL") in found["error"]
    assert "the second time in this epoch" in found["error"]
    for remedy in ("--data.workers", "memory", "/dev/shm", "--data.timeout-s"):
        assert remedy in found["error"]


class Kept(logging.Handler):
    """What was logged."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def play(name: str) -> dict[str, Any]:
    kept = Kept()
    logging.getLogger("vitscope").addHandler(kept)
    try:
        outcome = scenario(name)
    except DataError as error:
        outcome = {"error": str(error), "exit_code": error.exit_code}
    logging.getLogger("vitscope").removeHandler(kept)
    return {**outcome, "log": kept.lines}


def main() -> None:
    """Some at once: they mostly wait, for pictures that take a moment and for workers that hang."""
    names = sys.argv[1:]
    with ProcessPoolExecutor(4, mp_context=multiprocessing.get_context("fork")) as pool:
        print(json.dumps(dict(zip(names, pool.map(play, names), strict=True))))


if __name__ == "__main__":
    main()
