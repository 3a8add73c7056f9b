"""Programs that run kernels through Triton's interpreter, on the CPU: it is chosen when Triton is imported, so each has
a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def checks_passed(program: str) -> int:
    """How many checks of the program of this name beside this file say that they passed; none may fail."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).parent / program)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.count("passed")
