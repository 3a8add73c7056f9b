"""Run by test_short_attention.py in a process of its own: the kernels through Triton's interpreter, on the CPU."""

from __future__ import annotations

import itertools
import os
import time

os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported

import torch
import torch.nn.functional as F
from torch import Tensor

from vitscope.models.layers import attention, short_kernels
from vitscope.models.layers.attention import Attention
from vitscope.models.layers.short_attention import short_attention

TOKENS = (1, 16, 17, 64, 65, 128, 197, 256)
# Not bfloat16, which training uses: Triton's interpreter multiplies its matrices wrongly (tl.dot of two 16 x 16 ones is
# off by more than their values). On a GPU tests/gpu holds it against float64.
CLOSE = {torch.float32: 2e-6, torch.float16: 2e-3}


def exact(qkv: Tensor, heads: int, dout: Tensor) -> tuple[Tensor, Tensor]:
    """Output and gradient by the plain formula in float64."""
    b, n, width = qkv.shape
    qkv = qkv.detach().double().requires_grad_()
    q, k, v = qkv.reshape(b, n, 3, heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
    weights = (q @ k.mT * (width // (3 * heads)) ** -0.5).softmax(-1)
    out = (weights @ v).transpose(1, 2).flatten(2)
    (grad,) = torch.autograd.grad(out, qkv, dout.double())
    return out.detach(), grad


def off(given: Tensor, wanted: Tensor) -> float:
    return float((given.detach().double() - wanted).norm() / wanted.norm().clamp_min(1e-30))


def surrounded_by_nan(*shape: int, dtype: torch.dtype) -> Tensor:
    """Random values in the middle of a buffer of NaN."""
    count = torch.Size(shape).numel()
    buffer = torch.full((3 * count,), float("nan"), dtype=dtype)
    buffer[count : 2 * count] = torch.randn(count).to(dtype)
    return buffer[count : 2 * count].view(shape)


def check_values() -> None:
    for n, (dim, heads), dtype in itertools.product(TOKENS, ((32, 2), (64, 1)), CLOSE):
        loud = 8 if n in (17, 65, 256) else 1
        if dtype == torch.float16 and n in (128, 197):
            continue  # another type changes no tiling: fewer and more tokens will do
        qkv = surrounded_by_nan(2, n, 3 * heads * dim, dtype=dtype).mul_(loud).requires_grad_()
        dout = surrounded_by_nan(2, n, heads * dim, dtype=dtype)
        out = short_attention(qkv, heads)
        (grad,) = torch.autograd.grad(out, qkv, dout)
        wanted = exact(qkv, heads, dout)
        errors = off(out, wanted[0]), off(grad, wanted[1])
        assert out.dtype == grad.dtype == dtype
        assert out.is_contiguous()
        assert grad.is_contiguous()
        assert max(errors) < CLOSE[dtype] * (16 if loud > 1 else 1), (n, dim, heads, dtype, loud, errors)


def check_every_cut() -> None:
    """Another cut gives the same up to rounding."""
    tables = (short_kernels.FORWARD, short_kernels.BACKWARD, short_kernels.NOT_HOPPER)
    for cut in {short_kernels.Cut(entry.rows, 4) for table in tables for entry in table.values()}:
        qkv, dout = torch.randn(1, 81, 3 * 32), torch.randn(1, 81, 32)
        out, grad = exact(qkv, 1, dout)
        assert off(short_kernels.forward(qkv, 1, cut), out) < CLOSE[torch.float32]
        assert off(short_kernels.backward(qkv, dout, 1, cut), grad) < CLOSE[torch.float32]


def check_key_tiles() -> None:
    for n in range(1, 257):
        keys, more = short_kernels.key_tiles(n)
        assert n <= keys + more <= max(16, 2 * n - 1)
        assert all(length & (length - 1) == 0 and length != 8 for length in (keys, more))
    assert short_kernels.key_tiles(65) == (64, 16)
    assert short_kernels.key_tiles(197) == (256, 0)


def check_operator() -> None:
    qkv = torch.randn(2, 17, 3 * 64, requires_grad=True)
    torch.library.opcheck(torch.ops.vitscope.short_attention, (qkv, 2))


def check_layer() -> None:
    """The layer chooses it, compiled in one graph as well, and gives what it gave before."""
    torch.manual_seed(0)
    layer, x = Attention(64, 2, 32), torch.randn(2, 17, 64)
    wanted, gradients = _gradients(layer, x)
    calls: list[int] = []
    attention.is_short = lambda qkv, heads: calls.append(heads) or True
    for network in (layer, torch.compile(layer, backend="aot_eager", fullgraph=True)):
        out, given = _gradients(network, x, layer)
        torch.testing.assert_close(out, wanted)
        for one, other in zip(given, gradients, strict=True):
            torch.testing.assert_close(one, other)
    assert calls, "the layer never asked"
    fused: list[int] = []
    whole = F.scaled_dot_product_attention
    F.scaled_dot_product_attention = lambda *given, **named: fused.append(1) or whole(*given, **named)
    Attention(64, 2, 32, attn_drop=0.5)(x)
    Attention(64, 2, 32, qk_norm=True)(x)
    assert len(fused) == 2
    layer(x)
    Attention(64, 2, 32, attn_drop=0.5).eval()(x)
    assert len(fused) == 2


def _gradients(
    network: torch.nn.Module, x: Tensor, owner: torch.nn.Module | None = None
) -> tuple[Tensor, list[Tensor]]:
    x = x.clone().requires_grad_()
    out = network(x)
    return out.detach(), list(torch.autograd.grad(out.sin().sum(), [x, *(owner or network).parameters()]))


if __name__ == "__main__":
    torch.manual_seed(0)
    for check in (check_key_tiles, check_values, check_every_cut, check_operator, check_layer):
        start = time.perf_counter()
        check()
        print(f"{check.__name__} passed after {time.perf_counter() - start:.1f} s")
