"""2:4 on the sparse units of a real GPU: right products, launched in every way, and timed beside the dense network."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from gpu_runs import DEVICE

from vitscope.core.environment import why_no_compiler
from vitscope.infer.launched import Launch, launched
from vitscope.models.config import ViTConfig
from vitscope.sparse.fresh_two_of_four import CLOSE, masked_two_of_four, prove_two_of_four
from vitscope.sparse.measure import Stopwatch
from vitscope.sparse.two_of_four import as_two_of_four, why_no_two_of_four

VIT = ViTConfig(img_size=32, patch_size=4, num_classes=10, embed_dim=192, depth=2, num_heads=3)


@pytest.fixture(autouse=True)
def has_units() -> None:
    missing = why_no_two_of_four(torch.device(DEVICE))
    if missing is not None:
        pytest.skip(missing)


def test_the_sparse_units_say_what_the_masked_network_says() -> None:
    assert prove_two_of_four(VIT, torch.device(DEVICE)) < CLOSE


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_every_prunable_weight_is_taken(dtype: torch.dtype) -> None:
    device = torch.device(DEVICE)
    sparse = as_two_of_four(masked_two_of_four(VIT, device), device, dtype=dtype)
    assert sparse.left_dense == {}
    assert len(sparse.sparse) == 8
    assert type(sparse.network.get_submodule("blocks.0.mlp.fc1").weight).__name__.startswith("SparseSemiStructured")


@pytest.mark.parametrize("launch", ["graph", "compiled_graph"])
def test_a_launched_network_says_the_same(launch: Launch) -> None:
    device = torch.device(DEVICE)
    if launch.startswith("compiled") and why_no_compiler(device.type) is not None:
        pytest.skip("no C compiler")
    sparse = as_two_of_four(masked_two_of_four(VIT, device, loud=True), device)
    images = torch.randn(8, 3, 32, 32, device=device, dtype=torch.bfloat16)
    with torch.inference_mode():
        wanted = sparse(images).float()
        said = launched(sparse, launch, device=device, batch_size=8)(images).float()
    assert float((said - wanted).abs().max() / wanted.std()) < CLOSE


def test_it_is_timed(tmp_path: Path) -> None:
    timing = Stopwatch(tmp_path / "speed.json", torch.device(DEVICE)).time_two_of_four(VIT)
    assert timing.launched.ms_batch256 > 0
    assert timing.launched.speedup_batch256 > 0
