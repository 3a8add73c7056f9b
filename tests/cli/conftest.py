"""`vitscope ...` in a process of its own, as a user runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Shell = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """Run `python [options] -m vitscope ARGS` in an empty folder; two threads on few cores would crawl."""

    def run(*args: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *options, "-m", "vitscope", *args]
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False)

    return run
