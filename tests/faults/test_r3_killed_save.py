"""R3: kill -9 while a checkpoint is saved. A whole one is always found, never older than what a save had promised.

Two ways: a process that saves and saves is killed at random moments; and the folder is copied at every call that
changes the disk, so that no moment between two of them is left to luck.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from vitscope.train.checkpoints import files as checkpoint_files
from vitscope.train.checkpoints.store import Checkpoint, Checkpoints

KILLS = 24


def save(store: Checkpoints, step: int, version: int = 0) -> None:
    """Every value of the state says which step and version it is of."""
    mark = float(step * 10 + version)
    model = {f"w{number}": torch.full((50, 50), mark) for number in range(5)}
    trainer = {"optimizer": {name: {"exp_avg": tensor + 1} for name, tensor in model.items()}, "mark": mark}
    store.save(step, model, trainer, {"mark": mark})


def mark_of(found: Checkpoint) -> float:
    """The one mark all of it carries."""
    model, trainer = found.model(), found.trainer()
    marks = {float(value) for tensor in model.values() for value in (tensor.min(), tensor.max())}
    for state in trainer["optimizer"].values():
        marks |= {float(state["exp_avg"].min()) - 1, float(state["exp_avg"].max()) - 1}
    marks |= {trainer["mark"], found.meta["mark"]}
    assert len(marks) == 1, f"a mixture: {marks}"
    assert len(model) == len(trainer["optimizer"]) == 5
    return marks.pop()


def leftovers(folder: Path) -> list[str]:
    unfinished = [path.name for path in folder.glob("step-*") if not (path / "COMPLETE").exists()]
    return sorted([path.name for path in folder.iterdir() if path.name.endswith(".tmp")] + unfinished)


# --- killed at random moments


def save_for_ever(folder: Path, keep: int, first: int, promised: int) -> None:
    """In a process of its own. What a save has returned from is written to the pipe `promised`."""
    store = Checkpoints(folder, keep=keep)
    for step in range(first, first + 10**6):
        for version in range(1 + step % 2):  # every second step once more, with other values
            save(store, step, version)
            os.write(promised, struct.pack("<d", step * 10 + version))
        if step % 3 == 0:
            store.mark_best(step)


def kill_one(folder: Path, keep: int, chance: random.Random) -> dict[str, Any]:
    store = Checkpoints(folder, keep=keep)
    before = store.newest()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            save_for_ever(folder, keep, before.step + 1 if before else 1, writing)
        finally:
            os._exit(9)
    os.close(writing)
    heard = os.read(reading, 8)  # it is on its way
    time.sleep(chance.uniform(0, 0.03))
    os.kill(child, signal.SIGKILL)
    killed = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    while more := os.read(reading, 4096):
        heard += more
    os.close(reading)
    left = leftovers(folder)
    found = store.newest()
    outcome = {
        "killed": killed,
        "left": left,
        "promised": struct.unpack("<d", heard[-8:])[0],
        "found": mark_of(found) if found else None,
        "best": mark_of(best) if (best := store.best()) else None,
        "best step": best.step if best else None,
    }
    if chance.random() < 0.7:  # the others meet what was left
        store.sweep()
        after = store.newest()
        outcome |= {"swept": leftovers(folder), "after": mark_of(after) if after else None}
    return outcome


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, __file__, str(tmp_path_factory.mktemp("killed"))],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_each_process_was_killed_and_some_in_the_middle_of_a_save(killed: list[dict[str, Any]]) -> None:
    assert len(killed) == KILLS
    assert all(outcome["killed"] for outcome in killed)
    assert sum(bool(outcome["left"]) for outcome in killed) >= 5


def test_the_newest_is_whole_and_what_a_save_promised_is_not_lost(killed: list[dict[str, Any]]) -> None:
    for outcome in killed:
        # The save under way may be through or not; nothing further, for it had not begun.
        step, version = divmod(round(outcome["promised"]), 10)
        following = step * 10 + 1 if step % 2 and not version else (step + 1) * 10
        assert outcome["found"] in (outcome["promised"], following), outcome


def test_the_best_is_whole(killed: list[dict[str, Any]]) -> None:
    bests = [outcome for outcome in killed if outcome["best"] is not None]
    assert len(bests) >= 5
    assert all(outcome["best step"] % 3 == 0 for outcome in bests)


def test_sweeping_leaves_no_trace_and_no_loss(killed: list[dict[str, Any]]) -> None:
    swept = [outcome for outcome in killed if "swept" in outcome]
    assert len(swept) >= 5
    for outcome in swept:
        assert (outcome["swept"], outcome["after"]) == ([], outcome["found"])


# --- every moment, one by one


def moments(folder: Path, action: Callable[[], object], copies: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """`folder` as it was before and after every call of `action` that changes the disk."""
    taken: list[Path] = []

    def copy() -> None:
        taken.append(copies / str(len(taken)))
        shutil.copytree(folder, taken[-1], copy_function=shutil.copyfile)

    def watched(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            copy()
            result = original(*args, **kwargs)
            copy()
            return result

        return call

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", watched(os.fsync))
        for name in ("mkdir", "rename", "replace", "unlink", "rmdir"):
            patched.setattr(Path, name, watched(getattr(Path, name)))
        patched.setattr(checkpoint_files, "exchange", watched(checkpoint_files.exchange))
        action()
    return taken


@pytest.mark.parametrize("keep", [1, 2])
@pytest.mark.parametrize("case", ["next", "again", "damaged", "best"])
def test_no_moment_is_without_a_whole_checkpoint(
    case: str, keep: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "checkpoints"
    store = Checkpoints(folder, keep=keep)
    for step in (1, 2):
        save(store, step)
    store.mark_best(2)
    allowed = {20.0}
    if case == "next":
        taken = moments(folder, lambda: save(store, 3), tmp_path / "copies", monkeypatch)
        allowed.add(30.0)
    elif case == "again":  # the same step with other values, in the place of the only one there is
        taken = moments(folder, lambda: save(store, 2, 1), tmp_path / "copies", monkeypatch)
        allowed.add(21.0)
    elif case == "damaged":
        save(store, 3)
        (folder / "step-000003" / "trainer.pt").write_bytes(b"")
        taken = moments(folder, lambda: save(store, 3), tmp_path / "copies", monkeypatch)
        allowed.add(30.0)
    else:
        save(store, 3)
        taken = moments(folder, lambda: store.mark_best(3), tmp_path / "copies", monkeypatch)
        allowed = {30.0}
    assert len(taken) >= 4
    seen = []
    for copy in taken:
        copied = Checkpoints(copy, keep=keep)
        best = copied.best()
        assert best is not None
        assert best.step in ((2, 3) if case == "best" else (2,))
        for _ in range(2):  # as it was left, then swept
            found = copied.newest()
            assert found is not None
            seen.append(mark_of(found))
            copied.sweep()
            assert leftovers(copy) == []
    assert set(seen) == allowed
    assert seen == sorted(seen)  # once the new one is there it stays


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="asks Linux which file is meant")
def test_every_file_is_on_the_disk_before_its_name_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a power cut needs and a kill does not: fsync of the files, of their folder, then the name; COMPLETE last."""
    events: list[str] = []
    fsync, rename, replace = os.fsync, Path.rename, Path.replace

    def said(word: str, path: Path) -> None:
        parts = [re.sub(r"[0-9a-f]{16}", "#", part) for part in path.relative_to(tmp_path).parts]
        events.append(f"{word} {'/'.join(parts)}")

    def watched_fsync(handle: int) -> None:
        said("flush", Path(f"/proc/self/fd/{handle}").readlink())
        fsync(handle)

    def watched(move: Callable[[Path, Path], Path]) -> Callable[[Path, Path], Path]:
        def call(self: Path, target: Path) -> Path:
            said("name", Path(target))
            return move(self, target)

        return call

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", watched_fsync)
        patched.setattr(Path, "rename", watched(rename))
        patched.setattr(Path, "replace", watched(replace))
        save(Checkpoints(tmp_path / "c", keep=1), 5)
    hidden = "c/.step-000005.#.tmp"
    assert sorted(events[:3]) == [f"flush {hidden}/{name}" for name in ("meta.json", "model.safetensors", "trainer.pt")]
    assert events[3:] == [
        f"flush {hidden}",
        "name c/step-000005",
        "flush c",
        "flush c/step-000005/.#.tmp",
        "name c/step-000005/COMPLETE",
        "flush c/step-000005",
        "flush c",
        "flush c/.#.tmp",
        "name c/last",
        "flush c",
    ]


def main() -> None:
    chance = random.Random(0)
    outcomes = []
    for number in range(KILLS):
        folder = Path(sys.argv[1]) / str(1 + number % 2)  # half of them with nothing to fall back on but the last
        folder.mkdir(exist_ok=True)
        outcomes.append(kill_one(folder, 1 + number % 2, chance))
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main()
