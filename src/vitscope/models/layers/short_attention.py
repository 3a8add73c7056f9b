"""Attention over few tokens on a GPU in one pass over memory, from the fused linear's output and back to it.

B batch, N tokens, h heads, d numbers per head. Recomputing the softmax is FlashAttention's idea (Dao et al. 2022,
arXiv 2205.14135); with N this small all keys of a head fit into one thread block, and nothing else need be kept.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

HAS_TRITON = find_spec("triton") is not None
HEAD_DIMS = (32, 64)
DTYPES = (torch.bfloat16, torch.float16)
ALWAYS, WORK = 128, 256
"""Tokens up to which it is faster in every case; pictures times heads from which it trains faster beyond."""


def is_short(qkv: Tensor, num_heads: int) -> bool:
    """Whether `short_attention` can take it and is faster: a GPU that has the means, half precision, few tokens."""
    if not (HAS_TRITON and qkv.is_cuda and qkv.dtype in DTYPES and qkv.ndim == 3 and qkv.is_contiguous()):
        return False
    b, n, width = qkv.shape
    if b == 0 or width % (3 * num_heads) or width // (3 * num_heads) not in HEAD_DIMS or not 0 < n <= _most(qkv.device):
        return False
    # Over more tokens only its backward pass is faster than PyTorch's, and only where there is work for the whole card.
    return n <= ALWAYS or (torch.is_grad_enabled() and qkv.requires_grad and b * num_heads >= WORK)


def short_attention(qkv: Tensor, num_heads: int) -> Tensor:
    """softmax(q k^T / sqrt(d)) v for every head: (B, N, 3 h d), all q, all k, all v -> (B, N, h d)."""
    return _forward(qkv, num_heads)


def _most(device: torch.device) -> int:
    """Tokens the GPU has room for: over 128 they need more shared memory than the smaller cards have."""
    card = torch.cuda.get_device_properties(device)
    if torch.version.cuda is None or card.major < 8:
        return 0
    return 256 if card.shared_memory_per_block_optin >= 150 * 1024 else 128


# Operators of their own, so that torch.compile takes them as they are. Triton is imported when one first runs.


@torch.library.custom_op("vitscope::short_attention", mutates_args=())
def _forward(qkv: Tensor, num_heads: int) -> Tensor:
    from vitscope.models.layers import short_kernels

    return short_kernels.forward(qkv.contiguous(), num_heads)


@torch.library.custom_op("vitscope::short_attention_backward", mutates_args=())
def _backward(qkv: Tensor, dout: Tensor, num_heads: int) -> Tensor:
    from vitscope.models.layers import short_kernels

    return short_kernels.backward(qkv.contiguous(), dout.contiguous(), num_heads)


@_forward.register_fake
def _(qkv: Tensor, num_heads: int) -> Tensor:
    b, n, width = qkv.shape
    return qkv.new_empty(b, n, width // 3)


@_backward.register_fake
def _(qkv: Tensor, dout: Tensor, num_heads: int) -> Tensor:
    return torch.empty_like(qkv, memory_format=torch.contiguous_format)


def _remember(ctx: Any, inputs: tuple[Tensor, int], output: Tensor) -> None:
    ctx.save_for_backward(inputs[0])
    ctx.num_heads = inputs[1]


def _gradients(ctx: Any, dout: Tensor) -> tuple[Tensor, None]:
    return _backward(ctx.saved_tensors[0], dout, ctx.num_heads), None


_forward.register_autograd(_gradients, setup_context=_remember)
