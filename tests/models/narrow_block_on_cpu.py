"""Run by test_narrow_block.py in a process of its own: the kernels through Triton's interpreter, on the CPU."""

from __future__ import annotations

import os
import time

os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported

import torch
import torch.nn.functional as F
from torch import Tensor

from vitscope.models.config import ViTConfig
from vitscope.models.layers import block_kernels, narrow_block
from vitscope.models.layers.block import Block
from vitscope.models.layers.mlp import ACTIVATIONS
from vitscope.models.vit import make_blocks

# Not bfloat16: Triton's interpreter multiplies its matrices wrongly. On a GPU tests/gpu holds it against float64.
CLOSE = {torch.float32: 2e-6, torch.float16: 2e-3}
#         tokens, width, attention's width, neurons
SHAPES = [(1, 64, 32, 8), (65, 192, 64, 24), (70, 192, 192, 96), (33, 128, 0, 40), (64, 64, 96, 33)]


def surrounded_by_nan(*shape: int, dtype: torch.dtype, scale: float = 1.0) -> Tensor:
    """Random values in the middle of a buffer of NaN."""
    count = torch.Size(shape).numel()
    buffer = torch.full((3 * count + 2,), float("nan"), dtype=dtype)
    buffer[count : 2 * count] = (scale * torch.randn(count)).to(dtype)
    return buffer[count : 2 * count].view(shape)


def off(given: Tensor, wanted: Tensor) -> float:
    return float((given.detach().double() - wanted).norm() / wanted.norm())


def check_values() -> None:
    for dtype, close in CLOSE.items():
        for number, (tokens, width, mixed_width, neurons) in enumerate(SHAPES):

            def drawn(*shape: int, scale: float = 1.0, dtype: torch.dtype = dtype) -> Tensor:
                return surrounded_by_nan(*shape, dtype=dtype, scale=scale)

            def linear(outputs: int, inputs: int) -> tuple[Tensor, Tensor]:
                return drawn(outputs, inputs, scale=max(1, inputs) ** -0.5), drawn(outputs)

            x, gain, shift = drawn(1, tokens, width).add_(3), drawn(width), drawn(width)
            for bias in (True, False):
                weight, offset = linear(3 * mixed_width + 5, width)
                out = block_kernels.begin(x, gain, shift, 1e-6, weight, offset if bias else None)
                wanted = F.linear(_norm(x, gain, shift), weight.double(), offset.double() if bias else None)
                assert out.dtype == dtype
                assert off(out, wanted) < close, (dtype, number, bias, off(out, wanted))
            mixed = drawn(1, tokens, mixed_width) if mixed_width else None
            proj, fc1, fc2 = linear(width, mixed_width), linear(neurons, width), linear(width, neurons)
            for act in ACTIVATIONS if number == 1 else ("gelu",):
                weight = None if mixed is None else proj[0]
                out = block_kernels.end(x, mixed, weight, proj[1], gain, shift, 1e-6, *fc1, *fc2, act)
                y = x.double() + proj[1].double()
                if mixed is not None:
                    y = y + F.linear(mixed.double(), proj[0].double())
                h = F.linear(_norm(y, gain, shift), *(part.double() for part in fc1))
                wanted = y + F.linear(ACTIVATIONS[act](h), *(part.double() for part in fc2))
                assert out.dtype == dtype
                assert off(out, wanted) < close, (dtype, number, act, off(out, wanted))


def _norm(x: Tensor, gain: Tensor, shift: Tensor) -> Tensor:
    return F.layer_norm(x.double(), x.shape[-1:], gain.double(), shift.double(), 1e-6)


def check_width_tiles() -> None:
    for width in narrow_block.LEAST_TOKENS:
        wide, more = block_kernels.width_tiles(width)
        assert wide + more == width
        assert all(part & (part - 1) == 0 for part in (wide, more))
        assert width in block_kernels.BEGIN
        assert width in block_kernels.END


def check_not_finite() -> None:
    """What is no number stays none: a network that has diverged must not look well."""
    x, gain, zeros = torch.randn(1, 3, 64), torch.ones(64), torch.zeros(64)
    fc1, fc2 = (torch.randn(8, 64), torch.zeros(8)), (torch.randn(64, 8), zeros)
    for act in ACTIVATIONS:
        for bad in (float("nan"), float("inf")):
            bias = fc1[1].clone()
            bias[3] = bad
            out = block_kernels.end(x, None, None, zeros, gain, zeros, 1e-6, fc1[0], bias, *fc2, act)
            assert not out.isfinite().any(), (act, bad)


def check_operators() -> None:
    """What torch.compile is told of them is true."""
    block = _blocks()[0]
    x = torch.randn(2, 17, 64)
    torch.library.opcheck(torch.ops.vitscope.begin_block, (x, *_still(narrow_block._beginning_of(block))))
    rest = _still(narrow_block._end_of(block))
    torch.library.opcheck(torch.ops.vitscope.end_block, (x, torch.randn(2, 17, 64), *rest))
    torch.library.opcheck(torch.ops.vitscope.end_block, (x, None, None, *rest[1:]))


def check_blocks() -> None:
    """A block says what its layers say, also one without heads, also compiled in one graph."""
    for block in _blocks():
        x = torch.randn(2, 17, 64)
        with torch.no_grad():
            wanted = block(x)
            for network in (block, torch.compile(block, backend="aot_eager", fullgraph=True)):
                narrow_block.can_take = lambda x: not torch.is_grad_enabled()
                found = network(x)
                narrow_block.can_take = lambda x: False
                torch.testing.assert_close(found, wanted)
    tried = [key[0][0] for key in narrow_block.PROOF.why_not]  # pyright: ignore[reportIndexIssue]
    assert {"begin", "end"} == set(tried)
    assert not any(narrow_block.PROOF.why_not.values()), "the kernels did not run"


def _still(given: tuple[object, ...]) -> tuple[object, ...]:
    return tuple(value.detach() if isinstance(value, Tensor) else value for value in given)


def _blocks() -> list[Block]:
    config = ViTConfig(
        img_size=16, patch_size=4, embed_dim=64, depth=3, head_dim=32, num_heads=(2, 0, 1), mlp_dim=(96, 40, 8)
    )
    blocks = make_blocks(config)
    for block in blocks:
        for weight in block.parameters():
            torch.nn.init.normal_(weight, std=0.2)
        block.eval()
    return blocks


if __name__ == "__main__":
    torch.manual_seed(0)
    for check in (check_width_tiles, check_values, check_not_finite, check_operators, check_blocks):
        start = time.perf_counter()
        check()
        print(f"{check.__name__} passed after {time.perf_counter() - start:.1f} s")
