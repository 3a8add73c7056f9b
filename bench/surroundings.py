"""What a number was measured on and with: without it the number means nothing."""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch


def surroundings(device: torch.device) -> dict[str, str]:
    """Hardware, versions and the command, in the order they are printed."""
    return {
        "hardware": _gpu(device) if device.type == "cuda" else _cpu(),
        "versions": ", ".join([f"Python {platform.python_version()}", *map(_package, PACKAGES)]),
        "command": " ".join(["python", *sys.argv]),
    }


def report(facts: dict[str, str], rows: list[Any], text: str, file: Path | None) -> None:
    """The facts and the table of a run, printed last; facts and rows also into a JSON file, if one is named."""
    if file is not None:
        file.write_text(json.dumps({**facts, "rows": rows}, indent=1) + "\n")
    print()
    for word, fact in facts.items():
        print(f"- {word}: {fact}")
    print(f"\n{text}", flush=True)


PACKAGES = ("torch", "timm", "transformers")


def why_no_compiler(device: torch.device) -> str | None:
    """None where torch.compile can work: on a CPU it writes C++, on a GPU its launchers are C."""
    chosen = os.environ.get("CXX" if device.type == "cpu" else "CC")
    candidates = [chosen] if chosen else (["g++", "clang++", "c++"] if device.type == "cpu" else ["gcc", "clang", "cc"])
    if any(shutil.which(candidate) for candidate in candidates):
        return None
    return f"no compiler found ({', '.join(candidates)})"


def _package(name: str) -> str:
    try:
        return f"{name} {version(name)}"
    except PackageNotFoundError:
        return f"{name} not installed"


def _gpu(device: torch.device) -> str:
    facts = torch.cuda.get_device_properties(device)
    return f"{facts.name}, {facts.total_memory / 2**30:.0f} GiB, CUDA {torch.version.cuda}; host {_cpu()}"


def _cpu() -> str:
    name = platform.processor() or platform.machine()
    facts = Path("/proc/cpuinfo")
    if facts.exists():
        names = [
            line.split(":", 1)[1].strip() for line in facts.read_text().splitlines() if line.startswith("model name")
        ]
        name = names[0] if names else name
    return f"{name}, {os.cpu_count()} cores, torch uses {torch.get_num_threads()} threads"
