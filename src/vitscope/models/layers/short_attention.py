"""Attention over few tokens on a GPU in one pass over memory, from the fused linear's output and back to it.

B batch, N tokens, h heads, d numbers per head. Recomputing the softmax is FlashAttention's idea (Dao et al. 2022,
arXiv 2205.14135); with N this small all keys of a head fit into one thread block, and nothing else need be kept.

Each pass is proved once for its sizes, by running it (`kernel_proof.py`). What fails falls back to PyTorch.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from vitscope.core.errors import InputError, expected
from vitscope.models.layers.kernel_proof import HAS_TRITON, Proof, is_exported

HEAD_DIMS = (32, 64)
DTYPES = (torch.bfloat16, torch.float16)
MOST_TOKENS = 256
ALWAYS, FULL = 128, 256
"""Tokens up to which it is faster in every case; pictures times heads from which it trains faster beyond."""

Pass = Literal["forward", "backward"]
PROOF = Proof("attention over few tokens")


def is_short(qkv: Tensor, num_heads: int) -> bool:
    """Whether `short_attention` is the way to go: it can take it, is faster, and runs here."""
    if is_exported():
        return False
    return can_take(qkv, num_heads) and is_faster(qkv, num_heads) and works(qkv, num_heads)


def can_take(qkv: Tensor, num_heads: int) -> bool:
    """Whether the kernels are written for it: a GPU that has the means, half precision, few tokens."""
    if not (HAS_TRITON and qkv.is_cuda and qkv.dtype in DTYPES and qkv.is_contiguous() and _fits(qkv, num_heads)):
        return False
    return qkv.shape[0] > 0 and qkv.shape[1] <= _most(qkv.device)


def is_faster(qkv: Tensor, num_heads: int) -> bool:
    """Over more tokens only the backward pass is faster than PyTorch's, and only with work for the whole card."""
    b, n, _ = qkv.shape
    return n <= ALWAYS or (_trains(qkv) and b * num_heads >= FULL)


def works(qkv: Tensor, num_heads: int) -> bool:
    """Whether the kernels this needs run here; tried at the first question. While torch.compile traces, and of a tensor
    without values, nothing can be tried: the answer is yes, and the operators ask anew when they run."""
    if torch.compiler.is_compiling() or type(qkv) is not Tensor:
        return True
    return _runs("forward", qkv, num_heads) and (not _trains(qkv) or _runs("backward", qkv, num_heads))


def short_attention(qkv: Tensor, num_heads: int) -> Tensor:
    """softmax(q k^T / sqrt(d)) v for every head: (B, N, 3 h d), all q, all k, all v -> (B, N, h d)."""
    if not _fits(qkv, num_heads):
        dims = " or ".join(map(str, HEAD_DIMS))
        wanted = f"(B, N, 3 h d) of floats, N from 1 to {MOST_TOKENS}, h {num_heads}, d {dims}"
        raise InputError(
            expected("qkv", wanted, f"{tuple(qkv.shape)} of {qkv.dtype}"),
            where="short_attention",
            fix="ask `is_short` first; torch's scaled_dot_product_attention takes any size",
        )
    return _attend(qkv, num_heads)


def _fits(qkv: Tensor, num_heads: int) -> bool:
    if qkv.ndim != 3 or not qkv.is_floating_point() or num_heads < 1:
        return False
    n, width = qkv.shape[1:]
    return width % (3 * num_heads) == 0 and width // (3 * num_heads) in HEAD_DIMS and 0 < n <= MOST_TOKENS


def _most(device: torch.device) -> int:
    """Tokens the GPU has room for: over 128 they need more shared memory than the smaller cards have."""
    card = torch.cuda.get_device_properties(device)
    if torch.version.cuda is None or card.major < 8:
        return 0
    return MOST_TOKENS if card.shared_memory_per_block_optin >= 150 * 1024 else 128


def _trains(qkv: Tensor) -> bool:
    return torch.is_grad_enabled() and qkv.requires_grad


def _runs(which: Pass, qkv: Tensor, num_heads: int) -> bool:
    n, width = qkv.shape[1:]

    def attempt() -> None:
        from vitscope.models.layers import short_kernels

        one = torch.zeros((1, n, width), device=qkv.device, dtype=qkv.dtype)
        if which == "forward":
            short_kernels.forward(one, num_heads)
        else:
            short_kernels.backward(one, one.new_zeros(1, n, width // 3), num_heads)

    return PROOF.runs((which, n, width, num_heads), qkv, attempt)


# --- operators of their own, so that torch.compile takes them as they are ---------------------------------------------


@torch.library.custom_op("vitscope::short_attention", mutates_args=())
def _attend(qkv: Tensor, num_heads: int) -> Tensor:
    if not _runs("forward", qkv, num_heads):
        q, k, v = _parts(qkv, num_heads)
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2).contiguous()
    from vitscope.models.layers import short_kernels

    return short_kernels.forward(qkv.contiguous(), num_heads)


@torch.library.custom_op("vitscope::short_attention_backward", mutates_args=())
def _attend_backward(qkv: Tensor, dout: Tensor, num_heads: int) -> Tensor:
    if not _runs("backward", qkv, num_heads):
        return _plain_backward(qkv, dout, num_heads)
    from vitscope.models.layers import short_kernels

    return short_kernels.backward(qkv.contiguous(), dout.contiguous(), num_heads)


@_attend.register_fake
def _(qkv: Tensor, num_heads: int) -> Tensor:
    b, n, width = qkv.shape
    return qkv.new_empty(b, n, width // 3)


@_attend_backward.register_fake
def _(qkv: Tensor, dout: Tensor, num_heads: int) -> Tensor:
    return torch.empty_like(qkv, memory_format=torch.contiguous_format)


def _remember(ctx: Any, inputs: tuple[Tensor, int], output: Tensor) -> None:
    ctx.save_for_backward(inputs[0])
    ctx.num_heads = inputs[1]


def _gradients(ctx: Any, dout: Tensor) -> tuple[Tensor, None]:
    return _attend_backward(ctx.saved_tensors[0], dout, ctx.num_heads), None


_attend.register_autograd(_gradients, setup_context=_remember)


def _parts(qkv: Tensor, num_heads: int) -> tuple[Tensor, ...]:
    """q, k, v, each (B, h, N, d)."""
    b, n, _ = qkv.shape
    return qkv.reshape(b, n, 3, num_heads, -1).permute(2, 0, 3, 1, 4).unbind(0)


def _plain_backward(qkv: Tensor, dout: Tensor, num_heads: int) -> Tensor:
    """By the formula, in float32: inside an operator autograd does not record. Slow, and rare: only a graph that was
    compiled before anybody could try the kernels comes here."""
    b, n, width = qkv.shape
    exact = torch.promote_types(qkv.dtype, torch.float32)
    with torch.autocast(qkv.device.type, enabled=False):
        q, k, v = _parts(qkv.to(exact), num_heads)
        do = dout.to(exact).reshape(b, n, num_heads, -1).transpose(1, 2)
        scale = q.shape[-1] ** -0.5
        w = (q @ k.mT * scale).softmax(-1)
        dw = do @ v.mT
        ds = w * (dw - (w * dw).sum(-1, keepdim=True)) * scale
        dqkv = torch.stack([ds @ k, ds.mT @ q, w.mT @ do])
    return dqkv.permute(1, 3, 0, 2, 4).reshape(b, n, width).to(qkv.dtype).contiguous()
