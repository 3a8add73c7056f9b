"""Attention over few tokens: its kernels in Triton's interpreter (on a GPU: tests/gpu), and who may call it."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from vitscope.models.layers.short_attention import is_short

PROGRAM = Path(__file__).parent / "short_attention_on_cpu.py"


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
def test_the_kernels_compute_attention_and_its_gradient() -> None:
    """Against float64, with NaN around every tensor; the operator's rules; the layer that uses it, compiled too."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("passed") == 5


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_cpu_keeps_the_usual_way(dtype: torch.dtype) -> None:
    assert not is_short(torch.zeros(2, 65, 3 * 64, dtype=dtype), 1)
    assert not is_short(torch.zeros(2, 65, 3 * 64, dtype=dtype, device="meta"), 1)


def test_the_layer_needs_no_triton() -> None:
    program = (
        "import sys; sys.modules['triton'] = None\n"
        "import torch; from vitscope.models.layers.attention import Attention\n"
        "print(tuple(Attention(64, 2, 32)(torch.randn(2, 17, 64)).shape))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "(2, 17, 64)"
