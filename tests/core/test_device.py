"""Device choice, on machines this one is not."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from vitscope.core.device import available_devices, cpu_has_bf16, pick_device
from vitscope.core.errors import UsageError


def machine(monkeypatch: pytest.MonkeyPatch, *, gpus: int = 0, mps: bool = False) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)


@pytest.mark.parametrize(
    ("gpus", "mps", "best"), [(0, False, "cpu"), (0, True, "mps"), (2, False, "cuda"), (1, True, "cuda")]
)
def test_auto_takes_the_best(monkeypatch: pytest.MonkeyPatch, gpus: int, mps: bool, best: str) -> None:
    machine(monkeypatch, gpus=gpus, mps=mps)
    assert pick_device() == pick_device("auto") == torch.device(best)
    assert pick_device("cpu") == torch.device("cpu")


def test_a_gpu_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, gpus=2)
    assert available_devices() == ["cuda", "cuda:0", "cuda:1", "cpu"]
    assert pick_device("cuda:1") == torch.device("cuda", 1)
    assert pick_device(" CUDA:0 ") == torch.device("cuda", 0)


def test_a_number_too_high_names_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, gpus=2)
    with pytest.raises(UsageError, match="device 'cuda:2' cannot be used") as refusal:
        pick_device("cuda:2")
    assert refusal.value.where == "this machine has: cuda, cuda:0, cuda:1, cpu"
    assert refusal.value.exit_code == 2


def test_no_gpu_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch)
    for wish in ("cuda", "cuda:0", "mps"):
        with pytest.raises(UsageError, match=f"device '{wish}' cannot be used") as refusal:
            pick_device(wish)
        assert refusal.value.where == "this machine has: cpu"
        assert refusal.value.fix is not None
        assert "--device cpu" in refusal.value.fix


def test_a_torch_without_cuda_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch)
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.version, "hip", None)
    with pytest.raises(UsageError, match="is built without CUDA"):
        pick_device("cuda")


@pytest.mark.parametrize(
    ("wish", "fix"),
    [
        ("gpu", "you mean 'cuda'"),
        ("cdua", "did you mean 'cuda'?"),
        ("autp", "did you mean 'auto'?"),
        ("cuda:x", "did you mean 'cuda'?"),
        ("cuda:-1", "did you mean 'cuda'?"),
        ("xyzzy", "give auto, cpu, cuda, cuda:N or mps"),
        ("", "give auto, cpu, cuda, cuda:N or mps"),
    ],
)
def test_unknown_words_are_refused(wish: str, fix: str) -> None:
    with pytest.raises(UsageError, match=f"unknown device '{wish}'") as refusal:
        pick_device(wish)
    assert refusal.value.fix == fix


def test_the_ground_floor_is_cheap_to_import() -> None:
    """`vitscope --help` answers in half a second: nothing here may load torch or NumPy on import."""
    names = ("device", "environment", "seed", "run_folder", "config", "registry", "yaml")
    imports = "".join(f"import vitscope.core.{name}\n" for name in names)
    code = imports + "import sys; print(sorted({'torch', 'numpy'} & set(sys.modules)))"
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert made.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("units", "has"),
    [
        ({"avx512_bf16": True, "amx_bf16": False}, True),
        ({"avx512_bf16": False, "amx_bf16": True}, True),
        ({"avx512_bf16": False, "avx512_f": True}, False),
        ({}, False),
    ],
)
def test_a_cpu_has_bf16_where_torch_says_so(monkeypatch: pytest.MonkeyPatch, units: dict[str, bool], has: bool) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: units, raising=False)
    assert cpu_has_bf16() is has


def test_an_older_torch_cannot_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    assert cpu_has_bf16() is None
