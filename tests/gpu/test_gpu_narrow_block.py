"""Narrow blocks in three kernels on a real GPU: as exact as layer by layer, equal bits, compiled, captured."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from vitscope.infer.launched import launched
from vitscope.models.build import build_model
from vitscope.models.config import ViTConfig
from vitscope.models.layers import block, narrow_block
from vitscope.models.model import VisionModel

TINY = {"img_size": 32, "patch_size": 4, "num_classes": 10, "depth": 4, "head_dim": 64}
NETWORKS = {
    "as vit_tiny": {"embed_dim": 192, "num_heads": 3, "mlp_dim": 384},
    "made smaller": {"embed_dim": 192, "num_heads": (3, 1, 0, 2), "mlp_dim": (320, 96, 264, 40)},
    "an odd number of neurons": {"embed_dim": 192, "num_heads": 1, "mlp_dim": (1, 7, 33, 65)},
    "128 wide": {"embed_dim": 128, "num_heads": 2, "mlp_dim": 512, "act": "gelu_tanh"},
    "64 wide": {"embed_dim": 64, "num_heads": 1, "mlp_dim": 256, "act": "relu", "position": "rope"},
}
PICTURES = 130  # more tokens than any width asks for, and no multiple of a program's


@pytest.fixture(autouse=True)
def only_where_it_is_measured() -> None:
    if torch.cuda.is_available() and not narrow_block.is_measured(torch.device("cuda")):
        pytest.skip("this GPU keeps the layers one by one")


@pytest.fixture
def layer_by_layer(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    with monkeypatch.context() as patch:
        yield patch


def network(name: str, dtype: torch.dtype = torch.bfloat16) -> VisionModel:
    torch.manual_seed(0)
    model = build_model(ViTConfig(**TINY, **NETWORKS[name])).cuda().eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.05 * torch.randn_like(weight))
    return model.to(dtype)


def images(dtype: torch.dtype = torch.bfloat16) -> Tensor:
    torch.manual_seed(1)
    return torch.randn(PICTURES, 3, 32, 32, device="cuda").to(dtype)


def off(given: Tensor, wanted: Tensor) -> float:
    return float((given.double() - wanted).norm() / wanted.norm())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", NETWORKS)
def test_it_is_as_exact_as_layer_by_layer(name: str, dtype: torch.dtype, layer_by_layer: pytest.MonkeyPatch) -> None:
    model, taken = network(name, dtype), list[bool]()

    def noted(*given: object) -> bool:
        taken.append(narrow_block.is_narrow(*given))
        return taken[-1]

    with torch.no_grad():
        layer_by_layer.setattr(block, "is_narrow", noted)
        ours = model(images(dtype))
        layer_by_layer.setattr(block, "is_narrow", lambda *given: False)
        theirs = model(images(dtype))
        exact = model.double()(images(dtype).double())
    assert taken == [True] * 4
    assert not any(narrow_block.PROOF.why_not.values())
    assert off(ours, exact) <= 1.5 * off(theirs, exact) + 1e-3


def test_equal_bits_every_time_and_in_any_place() -> None:
    model, given = network("as vit_tiny"), images()
    with torch.no_grad():
        first = model(given)
        assert torch.equal(model(given), first)
        assert torch.equal(model(given.flip(0)).flip(0), first)


@pytest.mark.parametrize("launch", ["graph", "compiled", "compiled_graph"])
@pytest.mark.parametrize("name", ["as vit_tiny", "made smaller"])
def test_launched_in_other_ways_it_says_the_same(name: str, launch: str) -> None:
    model, given = network(name), images()
    run = launched(model.forward, launch, device=torch.device("cuda"), batch_size=PICTURES)
    with torch.inference_mode():
        eager = model(given)
        for _ in range(2):
            assert off(run(given), eager.double()) < (1e-9 if launch == "graph" else 1e-2)


def test_few_tokens_gradients_and_autocast_go_the_usual_way(monkeypatch: pytest.MonkeyPatch) -> None:
    model = network("as vit_tiny")
    monkeypatch.setattr(block, "narrow_block", lambda *given: pytest.fail("asked"))
    with torch.no_grad():
        model(images()[:4])
        with torch.autocast("cuda", torch.float16):
            model.float()(images().float())
    model.bfloat16()(images())
