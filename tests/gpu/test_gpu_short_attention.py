"""Attention over few tokens on a real GPU: as exact as PyTorch's own, equal bits every time, compiled, captured."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitscope.models.build import build_model
from vitscope.models.config import ViTConfig
from vitscope.models.layers import attention
from vitscope.models.layers.attention import Attention
from vitscope.models.layers.short_attention import ALWAYS, is_short, short_attention

SHAPES = [(3, 1, 1, 64), (3, 17, 3, 32), (2, 50, 12, 64), (33, 65, 3, 64), (4, 96, 2, 64), (3, 128, 6, 64)]
SHAPES += [(128, 16, 8, 32), (3, 64, 4, 32)]  # the guide's models have patches alone: 16 of them
SHAPES += [(2, 144, 2, 64), (5, 197, 12, 64), (3, 197, 3, 32), (2, 256, 3, 64)]


def fused(qkv: Tensor, heads: int) -> Tensor:
    b, n, _ = qkv.shape
    q, k, v = qkv.reshape(b, n, 3, heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
    return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


def plain(qkv: Tensor, heads: int) -> Tensor:
    b, n, _ = qkv.shape
    q, k, v = qkv.reshape(b, n, 3, heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
    return ((q @ k.mT * q.shape[-1] ** -0.5).softmax(-1) @ v).transpose(1, 2).flatten(2)


def both(way: object, qkv: Tensor, heads: int, dout: Tensor) -> list[Tensor]:
    qkv = qkv.detach().requires_grad_()
    out = way(qkv, heads)  # type: ignore[operator]
    return [out.detach(), *torch.autograd.grad(out, qkv, dout)]


def off(given: Tensor, wanted: Tensor) -> float:
    return float((given.double() - wanted).norm() / wanted.norm())


def drawn(b: int, n: int, heads: int, dim: int, dtype: torch.dtype, loud: float = 1.0) -> tuple[Tensor, Tensor]:
    torch.manual_seed(n)
    qkv = (loud * torch.randn(b, n, 3 * heads * dim, device="cuda")).to(dtype)
    return qkv, torch.randn(b, n, heads * dim, device="cuda").to(dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("loud", [1.0, 4.0])
def test_it_is_as_exact_as_pytorchs_own(shape: tuple[int, int, int, int], loud: float, dtype: torch.dtype) -> None:
    heads = shape[2]
    qkv, dout = drawn(*shape, dtype=dtype, loud=loud)
    assert is_short(qkv, heads) is (shape[1] <= ALWAYS)
    wanted = both(plain, qkv.double(), heads, dout.double())
    ours, theirs = both(short_attention, qkv, heads, dout), both(fused, qkv, heads, dout)
    for one, other, right in zip(ours, theirs, wanted, strict=True):
        assert off(one, right) <= 1.5 * off(other, right) + 1e-4


@pytest.mark.parametrize("shape", [(64, 65, 3, 64), (16, 197, 12, 64)], ids=str)
def test_equal_bits_every_time(shape: tuple[int, int, int, int]) -> None:
    qkv, dout = drawn(*shape, dtype=torch.bfloat16)
    first = both(short_attention, qkv, shape[2], dout)
    for _ in range(5):
        again = both(short_attention, qkv, shape[2], dout)
        assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))
    alone = both(short_attention, qkv[3:4].contiguous(), shape[2], dout[3:4].contiguous())
    assert all(torch.equal(one[3:4], other) for one, other in zip(first, alone, strict=True))


def test_nothing_beyond_the_last_token_is_read() -> None:
    qkv, dout = drawn(8, 65, 3, 64, dtype=torch.bfloat16)
    beyond = torch.full((3, *qkv.shape), float("nan"), device="cuda", dtype=torch.bfloat16)
    beyond[1] = qkv
    first, again = both(short_attention, qkv, 3, dout), both(short_attention, beyond[1], 3, dout)
    assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))


def stepped(network: nn.Module, x: Tensor) -> list[Tensor]:
    """Output, and gradient of the input, under autocast."""
    x = x.detach().requires_grad_()
    with torch.autocast("cuda", torch.bfloat16):
        out = network(x)
    return [out.detach(), *torch.autograd.grad(out.float().square().mean(), x)]


@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty")  # reduce-overhead begins with one
@pytest.mark.parametrize("n", [65, 197])
def test_compiled_in_one_graph_it_is_the_same(n: int) -> None:
    torch.manual_seed(0)
    layer, x = Attention(192, 3, 64).cuda(), torch.randn(100, n, 192, device="cuda")
    eager = stepped(layer, x)
    for mode in ("default", "reduce-overhead"):
        compiled = torch.compile(layer, fullgraph=True, mode=mode)
        for _ in range(3):
            found = [value.clone() for value in stepped(compiled, x)]
        for one, other in zip(found, eager, strict=True):
            assert off(one, other.double()) < 1e-2
        torch._dynamo.reset()


def test_it_can_be_captured() -> None:
    qkv, dout = drawn(16, 65, 3, 64, dtype=torch.bfloat16)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        both(short_attention, qkv, 3, dout)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = both(short_attention, qkv, 3, dout)
    qkv.copy_(drawn(16, 65, 3, 64, dtype=torch.bfloat16, loud=2.0)[0])
    graph.replay()
    wanted = both(short_attention, qkv, 3, dout)
    assert all(torch.equal(one, other) for one, other in zip(captured, wanted, strict=True))


def test_a_vit_says_the_same_with_and_without(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    config = ViTConfig(img_size=32, patch_size=4, num_classes=10, embed_dim=192, depth=6, num_heads=3)
    model = build_model(config).cuda().eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.05 * torch.randn_like(weight))
    images = torch.randn(32, 3, 32, 32, device="cuda")
    asked: list[bool] = []

    def noted(qkv: Tensor, heads: int) -> bool:
        asked.append(is_short(qkv, heads))
        return asked[-1]

    with torch.no_grad():
        exact = model(images).double()
        with torch.autocast("cuda", torch.bfloat16):
            monkeypatch.setattr(attention, "is_short", noted)
            ours = model(images)
            monkeypatch.setattr(attention, "is_short", lambda qkv, heads: False)
            theirs = model(images)
    assert asked == [True] * 6
    assert off(ours, exact) <= 1.5 * off(theirs, exact) + 1e-3


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((2, 257, 3, 64), torch.bfloat16), ((2, 65, 3, 64), torch.float32), ((2, 65, 3, 48), torch.half)],
)
def test_what_it_cannot_take_it_refuses(shape: tuple[int, int, int, int], dtype: torch.dtype) -> None:
    b, n, heads, dim = shape
    qkv = torch.zeros(b, n, 3 * heads * dim, device="cuda", dtype=dtype)
    assert not is_short(qkv, heads)
    assert not is_short(torch.zeros(2, 3 * 64, 65, device="cuda", dtype=torch.half).mT, 1)
    with torch.autocast("cuda", torch.bfloat16):
        out = Attention(64, heads, dim).cuda()(torch.randn(b, n, 64, device="cuda"))
    assert out.shape == (b, n, 64)


@pytest.mark.parametrize(("b", "trains", "taken"), [(64, True, True), (64, False, False), (1, True, False)])
def test_over_more_tokens_it_is_for_training_on_many_pictures(b: int, trains: bool, taken: bool) -> None:
    qkv = torch.zeros(b, 197, 3 * 12 * 64, device="cuda", dtype=torch.bfloat16, requires_grad=trains)
    assert is_short(qkv, 12) is taken
    with torch.no_grad():
        assert not is_short(qkv, 12)


def test_without_a_c_compiler_it_is_pytorchs(tmp_path: Path) -> None:
    """Triton's first call compiles C; in a process of its own, with nothing compiled before."""
    program = (
        "import torch; from vitscope.models.layers.attention import Attention\n"
        "layer, x = Attention(192, 3, 64).cuda(), torch.randn(4, 65, 192, device='cuda', requires_grad=True)\n"
        "with torch.autocast('cuda', torch.bfloat16): out = layer(x)\n"
        "out.float().sum().backward(); print(bool(x.grad.isfinite().all()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "CC": "/bin/false", "TRITON_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "True"
    assert done.stderr.count("our kernels do not run here (") == 1
