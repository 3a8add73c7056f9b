"""What a number was measured on and with: without it the number means nothing."""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch


def surroundings(device: torch.device) -> dict[str, str]:
    """Hardware, versions and the command, in the order they are printed."""
    return {
        "hardware": _gpu(device) if device.type == "cuda" else _cpu(),
        "versions": ", ".join([f"Python {platform.python_version()}", *map(_package, PACKAGES)]),
        "command": " ".join(["python", *sys.argv]),
    }


PACKAGES = ("torch", "timm", "transformers")


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
