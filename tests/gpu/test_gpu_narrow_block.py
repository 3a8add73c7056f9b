"""Narrow blocks in three kernels on a real GPU: as exact as layer by layer, equal bits, compiled, captured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from vitscope.infer.launched import Launch, launched
from vitscope.models.build import build_model
from vitscope.models.config import ViTConfig
from vitscope.models.layers import narrow_block
from vitscope.models.model import VisionModel
from vitscope.sparse.masks import apply_masks
from vitscope.sparse.two_of_four import as_two_of_four, two_of_four, why_no_two_of_four

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


def compiled(model: VisionModel) -> Callable[[Tensor], Tensor]:
    """In one graph, quickly: the kernels that are meant are ours."""
    torch._dynamo.reset()
    return torch.compile(model, backend="aot_eager", fullgraph=True)


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> dict[Any, str | None]:
    """The kernels that were asked for, and why one does not run."""
    tried: dict[Any, str | None] = {}
    monkeypatch.setattr(narrow_block.PROOF, "why_not", tried)
    return tried


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", NETWORKS)
def test_it_is_as_exact_as_layer_by_layer(name: str, dtype: torch.dtype, tried: dict[Any, str | None]) -> None:
    model = network(name, dtype)
    with torch.no_grad():
        theirs = model(images(dtype))
        assert not tried, "one by one they are not taken"
        ours = compiled(model)(images(dtype))
        exact = model.double()(images(dtype).double())
    assert {key[0][0] for key in tried} == {"begin", "end"}
    assert not any(tried.values())
    assert off(ours, exact) <= 1.5 * off(theirs, exact) + 1e-3


def test_equal_bits_every_time_and_in_any_place() -> None:
    model, given = compiled(network("as vit_tiny")), images()
    with torch.no_grad():
        first = model(given)
        assert torch.equal(model(given), first)
        assert torch.equal(model(given.flip(0)).flip(0), first)


@pytest.mark.parametrize("launch", ["compiled", "compiled_graph"])
@pytest.mark.parametrize("name", ["as vit_tiny", "made smaller"])
def test_launched_as_it_is_served(name: str, launch: Launch, tried: dict[Any, str | None]) -> None:
    model, given = network(name), images()
    run = launched(model.forward, launch, device=torch.device("cuda"), batch_size=PICTURES)
    with torch.inference_mode():
        served = [run(given).clone() for _ in range(2)]
        theirs = model(given)
        exact = model.double()(given.double())
    assert torch.equal(*served)
    assert off(served[0], exact) <= 1.5 * off(theirs, exact) + 1e-3
    assert tried
    assert not any(tried.values())


def test_few_tokens_gradients_and_autocast_go_the_usual_way(tried: dict[Any, str | None]) -> None:
    model = network("as vit_tiny")
    with torch.no_grad():
        compiled(model)(images()[:4])
        with torch.autocast("cuda", torch.float16):
            compiled(model)(images())
    compiled(model)(images())
    assert not tried


def test_on_2_of_4_units_it_is_asked_layer_by_layer(tried: dict[Any, str | None]) -> None:
    if why := why_no_two_of_four(torch.device("cuda")):
        pytest.skip(why)
    model = network("as vit_tiny", torch.float32)
    apply_masks(model, two_of_four(model))
    with torch.no_grad():
        torch.compile(as_two_of_four(model, "cuda").network, backend="eager")(images())
    assert not tried
