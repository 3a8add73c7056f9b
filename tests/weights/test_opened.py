"""What is loaded and what is hashed is one and the same file, whatever another process puts in its place meanwhile."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from vitscope.core.errors import VitscopeError
from vitscope.models.build import build_model
from vitscope.models.config import ViTConfig
from vitscope.weights import folder as own
from vitscope.weights import opened as opened_module
from vitscope.weights.files import read_file
from vitscope.weights.folder import replace_folder, save_model
from vitscope.weights.load import load_model
from vitscope.weights.opened import OpenFile

TINY = ViTConfig(img_size=16, patch_size=8, embed_dim=16, depth=2, num_heads=2, num_classes=3)
Tensors = dict[str, torch.Tensor]


def network(seed: int, **changes: Any) -> torch.nn.Module:
    torch.manual_seed(seed)
    settings = {"img_size": 16, "patch_size": 8, "embed_dim": 16, "depth": 2, "num_heads": 2, "num_classes": 3}
    return build_model(ViTConfig(**{**settings, **changes}))


def weights(seed: int) -> Tensors:
    return {name: tensor.clone() for name, tensor in network(seed).state_dict().items()}


def arrays(tensors: Tensors) -> dict[str, Any]:
    return {name: tensor.numpy() for name, tensor in tensors.items()}


WRITERS: dict[str, Callable[[Tensors, Path], object]] = {
    "a.safetensors": save_file,
    "a.pth": torch.save,
    "legacy.pth": lambda tensors, path: torch.save(tensors, path, _use_new_zipfile_serialization=False),
    "a.npz": lambda tensors, path: np.savez(path, **arrays(tensors)),
    "deflated.npz": lambda tensors, path: np.savez_compressed(path, **arrays(tensors)),
}


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_replaced_between_two_tensors(name: str, tmp_path: Path) -> None:
    path, other, first = tmp_path / name, tmp_path / f"new-{name}", weights(0)
    WRITERS[name](first, path)
    WRITERS[name](weights(1), other)
    was = sha256(path)
    stored = read_file(path)
    names = list(stored)
    found = {names[0]: stored[names[0]]}
    other.replace(path)
    found |= {one: stored[one] for one in names[1:]}
    assert all(torch.equal(found[one], first[one]) for one in names)
    assert stored.sha256() == {name: was}
    assert not stored.is_in_place()


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_removed_between_two_tensors(name: str, tmp_path: Path) -> None:
    path, first = tmp_path / name, weights(0)
    WRITERS[name](first, path)
    stored = read_file(path)
    path.unlink()
    assert all(torch.equal(stored[one], first[one]) for one in stored)
    assert not stored.is_in_place()


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_written_to_is_refused(name: str, tmp_path: Path) -> None:
    """Its inode stays, so that whoever has it open sees both."""
    path, other = tmp_path / name, tmp_path / f"new-{name}"
    WRITERS[name](weights(0), path)
    WRITERS[name](weights(1), other)
    stored = read_file(path)
    path.write_bytes(other.read_bytes())
    os.utime(path, ns=(1, 1))  # whatever the clock's steps are
    with pytest.raises(VitscopeError, match="written to while it was read"):
        stored.sha256()


@pytest.mark.parametrize("name", ["a.safetensors", "a.pth", "a.npz", "deflated.npz"])
def test_a_file_emptied_is_refused_and_kills_nobody(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    WRITERS[name](weights(0), path)
    stored = read_file(path)
    path.write_bytes(b"")
    with pytest.raises(VitscopeError, match="written to while it was read"):
        [stored[one] for one in stored]


@pytest.mark.parametrize("anywhere", [True, False])
@pytest.mark.parametrize("name", ["a.safetensors", "a.pth", "a.npz", "deflated.npz"])
def test_threads_read_one_file(name: str, anywhere: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever comes between, each gets the tensor it asked for."""
    monkeypatch.setattr(opened_module, "READS_ANYWHERE", anywhere and opened_module.READS_ANYWHERE)
    made = {f"t{number}": torch.full((2000,), float(number)) for number in range(40)}
    WRITERS[name](made, tmp_path / name)
    stored, before = read_file(tmp_path / name), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            found = list(threads.map(lambda one: (one, stored[one]), list(made) * 20))
    finally:
        sys.setswitchinterval(before)
    assert all(torch.equal(tensor, made[one]) for one, tensor in found)


@pytest.fixture
def at_the_third_tensor(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Something that happens in the middle of a load."""

    def arrange(happens: Callable[[], object]) -> None:
        count, read_into = [0], OpenFile.read_into

        def counted(self: OpenFile, place: int, room: memoryview) -> bool:
            count[0] += 1
            if count[0] == 3:
                happens()
            return read_into(self, place, room)

        monkeypatch.setattr(OpenFile, "read_into", counted)

    return arrange


@pytest.mark.parametrize("shard_bytes", [10**9, 8000])
def test_a_folder_replaced_in_the_middle_of_a_load(
    shard_bytes: int, tmp_path: Path, at_the_third_tensor: Callable[[Callable[[], object]], None]
) -> None:
    """As `convert --overwrite` and a run's new best do."""
    first, folder = network(0), tmp_path / "model"
    save_model(first, folder, shard_bytes=shard_bytes)
    files = {path.name: sha256(path) for path in folder.glob("model*")}
    at_the_third_tensor(lambda: save_model(network(1), folder, shard_bytes=shard_bytes, overwrite=True))
    model = load_model(folder)
    assert all(torch.equal(tensor, first.state_dict()[name]) for name, tensor in model.state_dict().items())
    assert model.certificate.sha256 == files
    assert {path.name: sha256(path) for path in folder.glob("model*")} != files, "it was not replaced"


def test_a_bare_file_written_in_the_middle_of_a_load(
    tmp_path: Path, at_the_third_tensor: Callable[[Callable[[], object]], None]
) -> None:
    torch.save(weights(0), tmp_path / "a.pth")

    def saved_again() -> None:
        torch.save(weights(1), tmp_path / "a.pth")
        os.utime(tmp_path / "a.pth", ns=(1, 1))

    at_the_third_tensor(saved_again)
    with pytest.raises(VitscopeError, match="written to while it was read") as refused:
        load_model(tmp_path / "a.pth", config=TINY)
    assert "load again" in str(refused.value.fix)


def test_settings_and_weights_are_of_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replaced after its config was read, the folder is opened anew."""
    folder, stored_in, swapped = tmp_path / "model", own.stored_in, []
    save_model(network(0), folder, labels=["a", "b", "c"])

    def late(place: Path) -> object:
        if not swapped:
            swapped.append(save_model(network(1, depth=3), folder, labels=["x", "y", "z"], overwrite=True))
        return stored_in(place)

    monkeypatch.setattr(own, "stored_in", late)
    model = load_model(folder)
    assert swapped
    assert model.config.depth == 3
    assert model.labels == ["x", "y", "z"]


def test_a_folder_that_never_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, stored_in = tmp_path / "model", own.stored_in
    save_model(network(0), folder)

    def never(place: Path) -> object:
        shutil.copytree(folder, tmp_path / "kept", dirs_exist_ok=True)
        replace_folder(folder, lambda new: shutil.copytree(tmp_path / "kept", new, dirs_exist_ok=True))
        return stored_in(place)

    monkeypatch.setattr(own, "stored_in", never)
    with pytest.raises(VitscopeError, match="replaced 5 times while it was opened"):
        load_model(folder)


def test_no_proof_by_other_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library opens files by their names, and would be asked about others."""
    from vitscope.weights import proof

    save_file(weights(0), tmp_path / "a.safetensors")
    prove = proof.prove

    def late(*given: Any, **settings: Any) -> object:
        save_file(weights(1), tmp_path / "new.safetensors")
        (tmp_path / "new.safetensors").replace(tmp_path / "a.safetensors")
        return prove(*given, **settings)

    monkeypatch.setattr(proof, "prove", late)
    model = load_model(tmp_path / "a.safetensors", config=TINY, prove=True)
    assert model.certificate.proof is None
    assert any("replaced while they were read" in remark for remark in model.certificate.remarks)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="open files are counted in /proc")
def test_no_file_stays_open(tmp_path: Path) -> None:
    for name, write in WRITERS.items():
        write(weights(0), tmp_path / name)
    save_model(network(0), tmp_path / "model", shard_bytes=8000)
    (tmp_path / "broken.pth").write_bytes((tmp_path / "a.pth").read_bytes()[:3000])
    before = open_files()
    kept = [load_model(tmp_path / name, config=TINY) for name in WRITERS] + [load_model(tmp_path / "model")]
    with pytest.raises(VitscopeError):
        load_model(tmp_path / "broken.pth", config=TINY)
    assert len(kept) == len(WRITERS) + 1
    assert open_files() == before


ODD: dict[str, Callable[[], torch.Tensor]] = {
    "turned": lambda: torch.arange(12.0).reshape(3, 4).t(),
    "a part": lambda: torch.arange(12.0)[3:7],
    "every second": lambda: torch.arange(12.0)[1::2],
    "expanded": lambda: torch.arange(3.0)[:, None].expand(3, 5),
    "empty": lambda: torch.empty(0, 4),
    "scalar": lambda: torch.tensor(7),
    "truth": lambda: torch.tensor([True, False]),
    "parameter": lambda: torch.nn.Parameter(torch.ones(2)),
    "bfloat16": lambda: torch.arange(5).bfloat16(),
    "channels last": lambda: torch.arange(120.0).reshape(2, 3, 4, 5).to(memory_format=torch.channels_last),
}


@pytest.mark.parametrize("name", ODD)
def test_tensors_of_a_torch_file_however_they_lie(name: str, tmp_path: Path) -> None:
    tensor = ODD[name]()
    torch.save({"before": torch.ones(5), "odd": tensor, "again": tensor}, tmp_path / "a.pth")
    stored = read_file(tmp_path / "a.pth")
    found, again = stored["odd"], stored["again"]
    assert torch.equal(found, tensor)
    assert found.dtype == tensor.dtype
    assert found.is_contiguous()
    assert not found.requires_grad
    assert not found.numel() or found.data_ptr() != again.data_ptr(), "each asker owns what he gets"
