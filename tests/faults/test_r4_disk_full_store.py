"""R4, the store's half: the disk is full while a checkpoint is saved. The old ones stay, nothing half-written does."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from vitscope.core.errors import EXIT_FAILED
from vitscope.train.checkpoints.store import CheckpointError, Checkpoints

LIMIT = 200_000
FILES = ("model.safetensors", "trainer.pt", "meta.json", "COMPLETE")
OLD = {f"step-000001/{name}" for name in FILES}


def save(store: Checkpoints, step: int, numbers: int = 1000) -> None:
    tensor = torch.full((numbers,), float(step))
    store.save(step, {"w": tensor}, {"exp_avg": tensor}, {"epoch": step})


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class Failing:
    """The n-th call that changes the disk, and all after it, find no room."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, nth: int, code: int) -> None:
        self.left = nth
        self.code = code
        self.monkeypatch = monkeypatch
        monkeypatch.setattr(os, "fsync", self.guarded(os.fsync))
        for name in ("mkdir", "rename", "replace"):
            monkeypatch.setattr(Path, name, self.guarded(getattr(Path, name)))

    def guarded(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.left -= 1
            if self.left <= 0:
                raise OSError(self.code, os.strerror(self.code))
            return original(*args, **kwargs)

        return call


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
@pytest.mark.parametrize("again", [False, True])
def test_no_room_at_any_of_its_steps(tmp_path: Path, code: int, again: bool) -> None:
    """Also where a checkpoint of the same step, with other values, is to be replaced."""
    store = Checkpoints(tmp_path / "checkpoints", keep=2)
    save(store, 1)
    if again:
        save(store, 2, numbers=10)
    before = contents(store.folder)
    nth = 0
    for nth in range(1, 100):
        with pytest.MonkeyPatch.context() as monkeypatch:
            Failing(monkeypatch, nth, code)
            try:
                save(store, 2)
            except CheckpointError as error:
                assert os.strerror(code) in error.what
                assert "it needs" in error.what
                assert error.where == str(store.folder)
                assert error.exit_code == EXIT_FAILED
            else:
                break
        after = contents(store.folder)
        if after != before:  # then it is saved, and only `last` could not say so
            assert store.open("step-000002").model()["w"].shape == (1000,)
            assert set(after) - set(before) <= {f"step-000002/{name}" for name in FILES}
            assert {name for name in before if after[name] != before[name]} <= {"last", *(set(after) - OLD)}
        assert not [path for path in store.folder.iterdir() if path.name.endswith(".tmp")]
        found = store.newest()
        assert found is not None
        assert float(found.model()["w"][0]) == float(found.trainer()["exp_avg"][0]) == found.step
        shutil.rmtree(store.folder)  # each at its own, from the same beginning
        for name, content in before.items():
            path = store.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    assert 8 < nth < 99, "the failures have to reach every step, and a save has to go through at last"
    assert store.newest() == store.open("last") == store.open("step-000002")
    assert store.open("last").model()["w"].shape == (1000,)


def test_it_does_not_begin_what_does_not_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Usage(NamedTuple):
        free: int

    store = Checkpoints(tmp_path / "checkpoints", keep=1)
    save(store, 1)
    before = contents(store.folder)
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "disk_usage", lambda path: Usage(4321))
        patched.setattr(Path, "rename", None)  # it must not get that far
        with pytest.raises(CheckpointError) as caught:
            save(store, 2)
    assert "No space left on device" in caught.value.what
    assert "4,321 are free" in caught.value.what
    need = int(caught.value.what.partition("it needs ")[2].partition(" bytes")[0].replace(",", ""))
    assert 8_000 < need < 16_000  # two tensors of 4,000 bytes and their descriptions
    assert "--checkpoint.keep" in str(caught.value.fix)
    assert contents(store.folder) == before
    save(store, 2)  # room again
    assert [path.name for path in store.folder.glob("step-*")] == ["step-000002"]


def test_a_place_that_cannot_be_written_to_is_not_called_full(tmp_path: Path) -> None:
    (tmp_path / "a file").write_text("mine")
    with pytest.raises(CheckpointError) as caught:
        save(Checkpoints(tmp_path / "a file" / "checkpoints", keep=1), 1)
    assert "Not a directory" in caught.value.what
    assert "can be written to" in str(caught.value.fix)
    assert contents(tmp_path) == {"a file": b"mine"}


def test_a_process_that_may_write_no_more(tmp_path: Path) -> None:
    """The system itself refuses, in the middle of a file: some of it is written already."""
    done = subprocess.run(
        [sys.executable, __file__, str(tmp_path / "checkpoints")],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    assert [list(outcome) for outcome in told] == [["saved"], ["error"], ["error"], ["error"], ["saved"]]
    for outcome in told[1:4]:
        assert os.strerror(errno.EFBIG) in outcome["error"]
        assert "are free" in outcome["error"]
    store = Checkpoints(tmp_path / "checkpoints", keep=2)
    assert sorted(path.name for path in store.folder.iterdir()) == ["last", "step-000001", "step-000005"]
    found = store.newest()
    assert found is not None
    assert float(found.model()["w"].sum()) == 5 * 1000
    assert float(store.open("step-000001").model()["w"].sum()) == 1000


def main() -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, LIMIT))
    store = Checkpoints(Path(sys.argv[1]), keep=2)
    told = []
    for step, numbers in enumerate([1000, 10**6, 10**5, 60_000, 1000], start=1):
        try:
            save(store, step, numbers)
            told.append({"saved": step})
        except CheckpointError as error:
            told.append({"error": str(error)})
    print(json.dumps(told))


if __name__ == "__main__":
    main()
