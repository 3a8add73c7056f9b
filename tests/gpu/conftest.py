"""Tests that need a GPU: skipped where there is none."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from gpu_runs import DEVICE

# cuBLAS reads it once, at its first product: before any test.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and DEVICE == "cuda" and not torch.cuda.is_available():
            item.add_marker(pytest.mark.skip(reason="no CUDA GPU"))


@pytest.fixture(autouse=True)
def gpu_left_clean() -> Iterator[None]:
    yield
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.set_per_process_memory_fraction(1.0)
