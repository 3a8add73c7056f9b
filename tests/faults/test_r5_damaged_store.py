"""R5, the store's half: a checkpoint is truncated, flipped in a bit, or lacks a file. It is said, and not used."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from vitscope.train.checkpoints.store import CheckpointError, Checkpoints

FILES = ("model.safetensors", "trainer.pt", "meta.json", "COMPLETE")
LAST = "step-000002"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound")
    store = Checkpoints(folder, keep=2)
    for step in (1, 2):
        tensor = torch.full((100,), float(step))
        store.save(step, {"w": tensor}, {"optimizer": {"w": {"exp_avg": tensor}}}, {"epoch": step, "val/loss": 0.25})
    store.mark_best(2)
    return folder


@pytest.fixture
def store(sound: Path, tmp_path: Path) -> Checkpoints:
    return Checkpoints(Path(shutil.copytree(sound, tmp_path / "checkpoints")), keep=2)


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def halved(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def longer(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


def zeroed(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def garbage(path: Path) -> None:
    path.write_bytes(b"\xff\xfe{[")


def missing(path: Path) -> None:
    path.unlink()


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def a_loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


def refused(store: Checkpoints, caplog: pytest.LogCaptureFixture, file: str) -> None:
    """The newest is the one before, with a word about the damaged file; asked for by name it is an error."""
    found = store.newest()
    assert found is not None
    assert (found.step, found.meta["epoch"]) == (1, 1)
    assert torch.equal(found.model()["w"], torch.ones(100))
    assert torch.equal(found.trainer()["optimizer"]["w"]["exp_avg"], torch.ones(100))
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 1
    assert LAST in warnings[0]
    assert file in warnings[0]
    for wish in (LAST, "last", "best", store.folder / LAST):
        with pytest.raises(CheckpointError) as caught:
            store.open(wish)
        assert file in str(caught.value)
        assert LAST in str(caught.value.where)
        assert caught.value.fix
    assert store.best() is None


@pytest.mark.parametrize("damage", [truncated, halved, emptied, longer, zeroed, garbage, missing, a_folder, a_loop])
@pytest.mark.parametrize("file", FILES)
def test_the_one_before_is_used(
    store: Checkpoints, file: str, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    damage(store.folder / LAST / file)
    refused(store, caplog, file)


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("place", [0.0, 0.07, 0.31, 0.5, 0.73, 0.96, 1.0])
def test_one_flipped_bit_is_enough(
    store: Checkpoints, file: str, place: float, caplog: pytest.LogCaptureFixture
) -> None:
    path = store.folder / LAST / file
    content = bytearray(path.read_bytes())
    index = int(place * (len(content) - 1))
    content[index] ^= 1 << (index % 8)
    path.write_bytes(content)
    refused(store, caplog, file)
    with pytest.raises(CheckpointError, match="sha256 mismatch"):
        store.open("last")


def test_every_single_bit_of_the_small_files(store: Checkpoints) -> None:
    for file in ("meta.json", "COMPLETE"):
        path = store.folder / LAST / file
        content = path.read_bytes()
        for index in range(len(content)):
            flipped = bytearray(content)
            flipped[index] ^= 1 << (index % 8)
            path.write_bytes(flipped)
            with pytest.raises(CheckpointError, match="sha256 mismatch"):
                store.open(LAST)
        path.write_bytes(content)
    assert store.open(LAST).step == 2


def test_damaged_between_the_proof_and_the_reading(store: Checkpoints) -> None:
    found = store.open(LAST)
    for file, read in (("model.safetensors", found.model), ("trainer.pt", found.trainer)):
        path = found.path / file
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 4
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match=f"{file} sha256 mismatch"):
            read()
        path.unlink()
        with pytest.raises(CheckpointError, match=f"{file} is missing"):
            read()


def test_all_damaged_is_none(store: Checkpoints, caplog: pytest.LogCaptureFixture) -> None:
    for folder in store.folder.glob("step-*"):
        truncated(folder / "trainer.pt")
    assert store.newest() is None
    assert len(caplog.records) == 2


def test_a_damaged_one_is_replaced_when_its_step_comes_again(store: Checkpoints) -> None:
    truncated(store.folder / LAST / "model.safetensors")
    tensor = torch.full((100,), 2.0)
    store.save(2, {"w": tensor}, {"optimizer": {"w": {"exp_avg": tensor}}}, {"epoch": 2, "val/loss": 0.25})
    found = store.newest()
    assert found is not None
    assert found.step == 2
    assert torch.equal(found.model()["w"], tensor)


# --- files made with intent: their sums are right


def forge(folder: Path, file: str, content: bytes) -> None:
    """Put `content` in and make all sums fit, as only somebody who means it would."""
    (folder / file).write_bytes(content)
    if file != "meta.json":
        meta = json.loads((folder / "meta.json").read_text())
        meta["files"][file] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        (folder / "meta.json").write_text(json.dumps(meta))
    seal = hashlib.sha256((folder / "meta.json").read_bytes()).hexdigest()
    (folder / "COMPLETE").write_text(f"{seal}\n")


class Bomb:
    """Touches a file when it is unpickled by a reader that trusts it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("zipped", [True, False])
def test_a_malicious_pickle_is_refused_and_not_run(store: Checkpoints, tmp_path: Path, zipped: bool) -> None:
    crater, file = tmp_path / "crater", tmp_path / "bomb.pt"
    if zipped:
        torch.save({"optimizer": Bomb(crater)}, file)
    else:
        file.write_bytes(pickle.dumps({"optimizer": Bomb(crater)}))
    forge(store.folder / LAST, "trainer.pt", file.read_bytes())
    found = store.open(LAST)
    with pytest.raises(CheckpointError, match=r"trainer\.pt is refused") as caught:
        found.trainer()
    assert not crater.exists()
    assert "weights_only=False" not in str(caught.value)  # torch's own text shows how to run it
    shutil.copy(file, store.folder / "step-000001" / "trainer.pt")
    with pytest.raises(CheckpointError, match="sha256 mismatch"):  # put in by itself it does not get that far
        store.open("step-000001")
    if zipped:  # the bomb is a real one
        torch.load(file, weights_only=False)
        assert crater.exists()


@pytest.mark.parametrize(
    "content", [b"", b"not a zip", pickle.dumps([1, 2]), b"PK\x03\x04" + bytes(100)], ids=["0", "text", "list", "zip"]
)
def test_a_trainer_that_is_none(store: Checkpoints, content: bytes) -> None:
    forge(store.folder / LAST, "trainer.pt", content)
    with pytest.raises(CheckpointError, match=r"trainer\.pt"):
        store.open(LAST).trainer()


@pytest.mark.parametrize("content", [b"", b"x" * 7, b"\xff" * 64, (2**62).to_bytes(8, "little") + b"{}"])
def test_weights_that_are_none(store: Checkpoints, content: bytes) -> None:
    forge(store.folder / LAST, "model.safetensors", content)
    with pytest.raises(CheckpointError, match=r"model\.safetensors"):
        store.open(LAST).model()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"3",
        b"null",
        b"{}",
        b'{"format": 2}',
        b'{"format": 1}',
        b'{"format": 1, "step": 2, "files": {}, "meta": {}}',
        b'{"format": 1, "step": 2, "files": [], "meta": {}}',
        b'{"format": 1, "step": "two", "files": {}, "meta": {}}',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
    ids=lambda content: repr(content[:50]),
)
def test_a_meta_that_is_none(store: Checkpoints, content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    forge(store.folder / LAST, "meta.json", content)
    refused(store, caplog, "meta.json")


def test_a_newer_format_says_so(store: Checkpoints) -> None:
    path = store.folder / LAST / "meta.json"
    forge(path.parent, "meta.json", path.read_bytes().replace(b'"format": 1', b'"format": 2'))
    with pytest.raises(CheckpointError, match="format: expected 1, received 2") as caught:
        store.open(LAST)
    assert caught.value.fix == "update vitscope"
