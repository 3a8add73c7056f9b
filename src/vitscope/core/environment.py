"""The only place that reads environment variables and the machine."""

from __future__ import annotations

import contextlib
import math
import os
import platform
import shutil
import sys
import warnings
from pathlib import Path
from typing import Any

from vitscope.core.device import cpu_has_bf16
from vitscope.core.packages import describe_packages, version_of

_CGROUP = Path("/sys/fs/cgroup")


def data_roots() -> list[Path]:
    """Where real data is looked for: `$VITSCOPE_DATA` if set, then `data/` here if it exists."""
    named = os.environ.get("VITSCOPE_DATA")
    here = Path("data")
    return [*([Path(named).expanduser()] if named else []), *([here] if here.is_dir() else [])]


def cache_root() -> Path:
    """Where what can be made again is kept: `$VITSCOPE_CACHE`, else `vitscope` in the user's cache folder."""
    named = os.environ.get("VITSCOPE_CACHE")
    if named:
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "vitscope"


def serve_token() -> str | None:
    """What clients of `vitscope serve` must send: `$VITSCOPE_TOKEN`."""
    return os.environ.get("VITSCOPE_TOKEN")


def ask_for_repeatable_kernels() -> None:
    """cuBLAS gives the same bits every time only with a workspace of fixed size, chosen before its first use."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def available_memory_bytes() -> int | None:
    """Memory this process could still take without pushing others out, where the system tells."""
    return _memory()["available_bytes"]


def why_no_compiler(device: str) -> str | None:
    """None where torch.compile can work on a kind of device: on a CPU it writes C++, on a GPU its launchers are C."""
    chosen = os.environ.get("CXX" if device == "cpu" else "CC")
    candidates = [chosen] if chosen else (["g++", "clang++", "c++"] if device == "cpu" else ["gcc", "clang", "cc"])
    if any(shutil.which(candidate) for candidate in candidates):
        return None
    return f"no compiler found ({', '.join(candidates)})"


def host_name() -> str:
    return platform.node()


def process_exists(pid: int) -> bool:
    """False only when no process of this number runs on this machine."""
    if os.name != "posix":  # signal 0 would end the process there
        return True
    if pid <= 0:  # would mean a group of processes
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # it is somebody else's
        return True
    return True


def process_place() -> tuple[int, int, int]:
    """Rank, rank on this machine and number of the processes that work together, as torchrun says; alone (0, 0, 1)."""
    said = [os.environ.get(name, "") for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE")]
    if not all(text.isdecimal() for text in said):  # some of them may be there for other reasons
        return 0, 0, 1
    rank, local_rank, world = map(int, said)
    return (rank, local_rank, world) if rank < world else (0, 0, 1)


def processes_here() -> int:
    """How many of them are on this machine, as torchrun says; else those that must be, by this one's rank here."""
    said = os.environ.get("LOCAL_WORLD_SIZE", "")
    return max(int(said) if said.isdecimal() else 1, process_place()[1] + 1)


def usable_cpus() -> int:
    """CPUs this process may use: what it is bound to, and no more than a container's quota."""
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota, _, period = (_text(_CGROUP / "cpu.max") or "").partition(" ")
    if quota.isdecimal() and period.strip().isdecimal():
        bound = min(bound, math.ceil(int(quota) / int(period)))
    return max(bound, 1)


def describe_environment(*, free_device_memory: bool = True) -> dict[str, Any]:
    """Machine, Python, torch and packages as plain data. Never fails: what cannot be read is None or a text.

    To ask a GPU for its free memory occupies some of it, which a run must not do to GPUs it does not use:
    `free_device_memory=False`.
    """
    packages, extras = describe_packages()
    return {
        "vitscope": version_of("vitscope"),
        "python": {"version": platform.python_version(), "executable": sys.executable},
        "platform": platform.platform(),
        "cpus": usable_cpus(),
        "memory": _memory(),
        "disk": _disk(),
        "torch": _torch(free_device_memory),
        "packages": packages,
        "extras": extras,
        "data_roots": [str(root) for root in data_roots()],
    }


def describe_versions() -> str:
    """What a reader needs to repeat a run: 'vitscope 0.3, Python 3.12.3, torch 2.11.0'."""
    return f"vitscope {version_of('vitscope')}, Python {platform.python_version()}, torch {version_of('torch')}"


def _torch(free_device_memory: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"version": version_of("torch"), "torchvision": version_of("torchvision")}
    # An old driver is told as a warning, and belongs in the answer.
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            import torch

            found["threads"] = torch.get_num_threads()
            found["cpu_bf16"] = cpu_has_bf16()
            found["cuda_version"] = torch.version.cuda
            found["mps_available"] = torch.backends.mps.is_available()
            found["cuda_available"] = torch.cuda.is_available()
            count = torch.cuda.device_count() if found["cuda_available"] else 0
            found["devices"] = [_cuda_device(index, free_device_memory) for index in range(count)]
        except Exception as error:  # a broken install raises OSError, RuntimeError and more
            found["error"] = f"{type(error).__name__}: {error}"
    found["warnings"] = [str(warning.message) for warning in told]
    return found


def _cuda_device(index: int, free_memory: bool) -> dict[str, Any]:
    import torch

    properties = torch.cuda.get_device_properties(index)
    free_bytes = None
    if free_memory:
        with contextlib.suppress(RuntimeError):  # a GPU that is full or reserved does not hide the others
            free_bytes = torch.cuda.mem_get_info(index)[0]
    return {
        "device": f"cuda:{index}",
        "name": properties.name,
        "capability": f"{properties.major}.{properties.minor}",
        "bf16": torch.version.hip is not None or properties.major >= 8,
        "total_bytes": properties.total_memory,
        "free_bytes": free_bytes,
    }


def _memory() -> dict[str, int | None]:
    lines = (line.split() for line in (_text(Path("/proc/meminfo")) or "").splitlines())
    sizes = {line[0]: int(line[1]) * 1024 for line in lines if len(line) > 1 and line[1].isdecimal()}
    total, available = sizes.get("MemTotal:", _physical_memory()), sizes.get("MemAvailable:")
    limit = (_text(_CGROUP / "memory.max") or "").strip()
    if limit.isdecimal():  # a container may have less than its machine
        total = int(limit) if total is None else min(total, int(limit))
        available = None if available is None else min(available, total)
    return {"total_bytes": total, "available_bytes": available}


def _physical_memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _disk() -> dict[str, Any]:
    try:
        return {"path": str(Path.cwd()), "free_bytes": shutil.disk_usage(".").free}
    except OSError as error:  # the current folder was removed
        return {"path": None, "free_bytes": None, "error": str(error)}


def _text(path: Path) -> str | None:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return None
