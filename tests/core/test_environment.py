"""What the machine is, read without trusting it to be whole."""

from __future__ import annotations

import builtins
import json
import os
import subprocess
import sys
import warnings
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from vitscope.core import environment, packages
from vitscope.core.environment import (
    ask_for_repeatable_kernels,
    data_roots,
    describe_environment,
    describe_versions,
    process_exists,
    usable_cpus,
)


def test_data_roots_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("VITSCOPE_DATA", raising=False)
    assert data_roots() == []
    (tmp_path / "data").mkdir()
    assert data_roots() == [Path("data")]
    monkeypatch.setenv("VITSCOPE_DATA", "/somewhere/else")
    assert data_roots() == [Path("/somewhere/else"), Path("data")]
    monkeypatch.setenv("VITSCOPE_DATA", "~/pictures")
    assert data_roots()[0] == Path.home() / "pictures"
    monkeypatch.setenv("VITSCOPE_DATA", "")
    assert data_roots() == [Path("data")]


def test_a_data_file_is_not_a_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("VITSCOPE_DATA", raising=False)
    (tmp_path / "data").write_text("")
    assert data_roots() == []


def test_the_description_is_true_and_plain() -> None:
    found = json.loads(json.dumps(describe_environment(), allow_nan=False))
    assert found["python"]["version"] == sys.version.split()[0]
    assert found["python"]["executable"] == sys.executable
    assert "host" not in found  # people paste this into bug reports
    assert found["torch"]["version"] == metadata.version("torch")
    assert found["torch"]["torchvision"] == metadata.version("torchvision")
    assert found["torch"]["threads"] == torch.get_num_threads()
    assert found["torch"]["cuda_available"] == torch.cuda.is_available()
    assert len(found["torch"]["devices"]) == torch.cuda.device_count()
    assert "error" not in found["torch"]
    assert 0 < found["memory"]["available_bytes"] <= found["memory"]["total_bytes"]
    assert found["disk"]["free_bytes"] > 0
    assert 1 <= found["cpus"] <= (os.cpu_count() or 1)
    assert found["packages"]["torch"]["version"] == metadata.version("torch")
    assert {"tune", "serve", "export", "quant", "dev"} <= set(found["extras"])


def test_a_torch_that_cannot_be_imported_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def broken(name: str, *rest: Any, **more: Any) -> Any:
        if name == "torch":
            raise OSError("libtorch_cpu.so: cannot open shared object file")
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", broken)
    found = describe_environment()
    assert found["torch"]["error"] == "OSError: libtorch_cpu.so: cannot open shared object file"
    assert found["torch"]["version"] == metadata.version("torch")
    assert found["cpus"] >= 1


def test_a_missing_torch_is_reported_in_a_real_process(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')")
    code = "from vitscope.core.environment import describe_environment as d; print(d()['torch']['error'])"
    made = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert made.stdout.strip() == "ImportError: no torch here"


def test_gpus_are_described(monkeypatch: pytest.MonkeyPatch) -> None:
    def properties(index: int) -> SimpleNamespace:
        return SimpleNamespace(name=f"card {index}", major=7 + index, minor=5, total_memory=100)

    def free(index: int) -> tuple[int, int]:
        if index == 1:
            raise RuntimeError("CUDA error: out of memory")
        return 60, 100

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", properties)
    monkeypatch.setattr(torch.cuda, "mem_get_info", free)
    first, second = describe_environment()["torch"]["devices"]
    assert first["name"] == "card 0"
    assert (first["bf16"], second["bf16"]) == (False, True)
    assert (first["free_bytes"], second["free_bytes"]) == (60, None)
    assert describe_environment(free_device_memory=False)["torch"]["devices"][0]["free_bytes"] is None


def test_an_old_driver_is_reported_not_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def available() -> bool:
        warnings.warn("the NVIDIA driver is too old", UserWarning, stacklevel=1)
        return False

    monkeypatch.setattr(torch.cuda, "is_available", available)
    assert describe_environment()["torch"]["warnings"] == ["the NVIDIA driver is too old"]


def test_a_container_has_less_than_its_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "_CGROUP", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)), raising=False)
    assert usable_cpus() == 64
    (tmp_path / "cpu.max").write_text("max 100000\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert usable_cpus() == 64
    whole = describe_environment()["memory"]["total_bytes"]
    (tmp_path / "cpu.max").write_text("250000 100000\n")
    (tmp_path / "memory.max").write_text("1000000\n")
    assert usable_cpus() == 3
    assert describe_environment()["memory"] == {"total_bytes": 1_000_000, "available_bytes": 1_000_000}
    assert whole > 1_000_000


def test_a_machine_without_proc_is_tolerated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "_text", lambda _: None)
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    found = describe_environment()
    assert found["memory"]["total_bytes"] == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert found["memory"]["available_bytes"] is None
    assert found["cpus"] == os.cpu_count()
    monkeypatch.delattr(os, "sysconf")
    assert describe_environment()["memory"]["total_bytes"] is None


def test_a_removed_current_folder_is_tolerated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert describe_environment()["disk"]["free_bytes"] is None


def test_processes_are_seen() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert process_exists(os.getpid())
    assert process_exists(child.pid)
    child.communicate(b"\n")
    assert not process_exists(child.pid)
    assert not process_exists(0)
    assert not process_exists(-1)
    assert not process_exists(10**30)


REQUIRES = [
    "torch>=2.11",
    "PyYAML (>=6.0)",
    "plain",
    "optuna>=4.0; extra == 'tune'",
    'fastapi[all]>=0.115 ; extra == "serve"',
    "uvicorn>=0.30; extra == 'serve'",
]


def test_extras_come_from_the_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {"torch": "2.15.0+cpu", "PyYAML": "6.0", "optuna": "4.1.0", "fastapi": "0.20", "plain": "1"}
    monkeypatch.setattr(packages.metadata, "requires", lambda _: REQUIRES)
    monkeypatch.setattr(packages, "version_of", versions.get)
    needed, extras = packages.describe_packages()
    assert needed == {
        "torch": {"version": "2.15.0+cpu", "needs": ">=2.11", "fits": True},
        "PyYAML": {"version": "6.0", "needs": ">=6.0", "fits": True},
        "plain": {"version": "1", "needs": "", "fits": True},
    }
    assert extras["tune"] == {
        "packages": {"optuna": {"version": "4.1.0", "needs": ">=4.0", "fits": True}},
        "install": None,
    }
    assert extras["serve"]["install"] == "pip install 'vitscope[serve]'"
    assert extras["serve"]["packages"]["uvicorn"]["version"] is None
    assert not extras["serve"]["packages"]["fastapi"]["fits"]  # too old


@pytest.mark.parametrize(
    ("version", "needs", "fits"),
    [
        ("2.9", ">=2.11", False),
        ("2.11", ">=2.11", True),
        ("17", ">=17.0.0", True),
        ("1.1.390", ">=1.1.390", True),
        ("2.15.0a0+git1", ">=2.11", True),
        ("3", ">=2,!=3", True),
    ],
)
def test_versions_compare_as_numbers(monkeypatch: pytest.MonkeyPatch, version: str, needs: str, fits: bool) -> None:
    monkeypatch.setattr(packages.metadata, "requires", lambda _: [f"thing{needs}"])
    monkeypatch.setattr(packages, "version_of", lambda _: version)
    assert packages.describe_packages()[0]["thing"]["fits"] is fits


def test_a_source_folder_that_was_never_installed_is_tolerated(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> list[str]:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(packages.metadata, "requires", absent)
    assert packages.describe_packages() == ({}, {})
    assert packages.version_of("no-such-package-at-all") is None


def test_versions_in_one_line() -> None:
    python = ".".join(map(str, sys.version_info[:3]))
    line = describe_versions()
    assert line == f"vitscope {packages.version_of('vitscope')}, Python {python}, torch {metadata.version('torch')}"
    assert "None" not in line


def test_kernels_that_repeat_are_asked_for_unless_something_else_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")  # so that it is put back afterwards
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    ask_for_repeatable_kernels()
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    ask_for_repeatable_kernels()
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":16:8"
