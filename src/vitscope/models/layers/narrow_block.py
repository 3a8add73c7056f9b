"""A narrow pre-norm block at inference on a GPU, in three kernels: norm and q, k, v; attention; everything after it.

Layers this narrow cost little arithmetic. Launched one by one they spend their time reading and writing tokens, and a
network that has lost half of its units would be hardly faster than before. B batch, N tokens, D width, A width of what
attention gives (heads times numbers per head), M neurons.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

from vitscope.models.layers.attention import Attention
from vitscope.models.layers.empty import EmptyAttention
from vitscope.models.layers.kernel_proof import HAS_TRITON, Proof, cannot_try, is_exported
from vitscope.models.layers.mlp import ACTIVATIONS, Mlp

DTYPES = (torch.bfloat16, torch.float16)
LEAST_TOKENS = {64: 1024, 128: 4096, 192: 8192}
"""By width, of all pictures together: a program takes 64 of them, and with fewer programs the card is not full. Wider
tokens would not fit into a program beside their sums, and have enough arithmetic to hide their way."""
STEP = 32
"""A and D are multiples of it."""
PROOF = Proof("what lies between two attentions")


def is_narrow(block: nn.Module, x: Tensor) -> bool:
    """Whether `narrow_block` is the way to go: it can take it, says what the layers would say, and runs here."""
    return can_take(x) and is_as_built(block, x.dtype) and works(block, x)


def can_take(x: Tensor) -> bool:
    """Whether tokens (B, N, D) are what the kernels are written for: on a GPU they were measured on, in half precision,
    narrow, many, and without gradient."""
    if not (HAS_TRITON and x.is_cuda and x.dtype in DTYPES and x.ndim == 3 and x.shape[2] in LEAST_TOKENS):
        return False
    if torch.is_grad_enabled() or torch.is_autocast_enabled("cuda") or is_exported():
        return False
    return x.is_contiguous() and x.shape[0] * x.shape[1] >= LEAST_TOKENS[x.shape[2]] and is_measured(x.device)


def is_as_built(block: Any, dtype: torch.dtype) -> bool:
    """Whether a block computes what these kernels do, in this precision, and nobody listens inside: hooks would hear
    nothing, and a layer that was exchanged, or has weights of a kind of its own, would not be asked."""
    attn, mlp = block.attn, block.mlp
    if type(attn) not in (Attention, EmptyAttention) or type(mlp) is not Mlp or block.norm_order != "pre":
        return False
    if ACTIVATIONS.get(mlp.act_name) is not mlp.act or type(block.ls1) is not nn.Identity:
        return False
    norms, linears = [block.norm2], [mlp.fc1, mlp.fc2]
    if attn.num_heads:
        norms, linears = [*norms, block.norm1], [*linears, attn.qkv, attn.proj]
        if attn.proj.in_features % STEP:
            return False
    return (
        all(type(norm) is nn.LayerNorm for norm in norms)
        and all(type(linear) is nn.Linear for linear in linears)
        and all(type(layer.weight) is nn.Parameter and layer.weight.dtype == dtype for layer in norms + linears)
        and not any(part.training for part in block.modules())
        and not any(part._forward_hooks or part._forward_pre_hooks for part in block.modules() if part is not block)
        and not _has_any_global_hook()
    )


def works(block: Any, x: Tensor) -> bool:
    """Whether the kernels run here; tried at the first question. Where nothing can be tried the answer is yes, and the
    operators ask anew when they run."""
    return cannot_try(x) or (
        (not block.attn.num_heads or _runs_beginning(x, *_beginning_of(block))) and _runs_end(x, None, *_end_of(block))
    )


def narrow_block(block: Any, x: Tensor, rope: tuple[Tensor, Tensor] | None = None) -> Tensor:
    """What `block` says of the tokens (B, N, D)."""
    # Operators are for compilers: called plainly they would cost more than the kernels themselves.
    begin, end = (_begin, _end) if cannot_try(x) else (_begin_now, _end_now)
    mixed = block.attn.mix(begin(x, *_beginning_of(block)), rope) if block.attn.num_heads else None
    return end(x, mixed, *_end_of(block))


Beginning = tuple[Tensor, Tensor, float, Tensor, Tensor | None]
End = tuple[Tensor | None, Tensor, Tensor, Tensor, float, Tensor, Tensor, Tensor, Tensor, str]


def _beginning_of(block: Any) -> Beginning:
    norm, qkv = block.norm1, block.attn.qkv
    return norm.weight, norm.bias, norm.eps, qkv.weight, qkv.bias


def _end_of(block: Any) -> End:
    proj, norm, fc1, fc2 = block.attn.proj, block.norm2, block.mlp.fc1, block.mlp.fc2
    weight = proj.weight if block.attn.num_heads else None
    return (
        *(weight, proj.bias, norm.weight, norm.bias, norm.eps),
        *(fc1.weight, fc1.bias, fc2.weight, fc2.bias, block.mlp.act_name),
    )


def is_measured(device: torch.device) -> bool:
    return torch.version.cuda is not None and torch.cuda.get_device_properties(device).major == 9


# --- operators of their own, so that torch.compile takes them as they are ---------------------------------------------


def _begin_now(x: Tensor, gain: Tensor, shift: Tensor, eps: float, weight: Tensor, bias: Tensor | None) -> Tensor:
    """linear(norm(x)): (B, N, D) -> (B, N, outputs)."""
    if not _runs_beginning(x, gain, shift, eps, weight, bias):
        return F.linear(F.layer_norm(x, x.shape[-1:], gain, shift, eps), weight, bias)
    from vitscope.models.layers import block_kernels

    return block_kernels.begin(x, gain, shift, eps, weight, bias)


def _end_now(
    x: Tensor,
    mixed: Tensor | None,
    proj_weight: Tensor | None,
    proj_bias: Tensor,
    gain: Tensor,
    shift: Tensor,
    eps: float,
    fc1_weight: Tensor,
    fc1_bias: Tensor,
    fc2_weight: Tensor,
    fc2_bias: Tensor,
    act: str,
) -> Tensor:
    """y + fc2(act(fc1(norm(y)))) of y = x + proj(mixed): (B, N, D), (B, N, A) -> (B, N, D). Without heads there is
    neither `mixed` nor proj's weight, only its bias."""
    rest = (proj_weight, proj_bias, gain, shift, eps, fc1_weight, fc1_bias, fc2_weight, fc2_bias, act)
    if not _runs_end(x, mixed, *rest):
        y = x + (proj_bias if mixed is None or proj_weight is None else F.linear(mixed, proj_weight, proj_bias))
        h = F.linear(F.layer_norm(y, y.shape[-1:], gain, shift, eps), fc1_weight, fc1_bias)
        return y + F.linear(ACTIVATIONS[act](h), fc2_weight, fc2_bias)
    from vitscope.models.layers import block_kernels

    return block_kernels.end(x, None if mixed is None else mixed.contiguous(), *rest)


_begin = torch.library.custom_op("vitscope::begin_block", _begin_now, mutates_args=())
_end = torch.library.custom_op("vitscope::end_block", _end_now, mutates_args=())


@_begin.register_fake
def _(x: Tensor, gain: Tensor, shift: Tensor, eps: float, weight: Tensor, bias: Tensor | None) -> Tensor:
    return x.new_empty(*x.shape[:-1], weight.shape[0])


@_end.register_fake
def _(x: Tensor, mixed: Tensor | None, *rest: Any) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _runs_beginning(x: Tensor, gain: Tensor, shift: Tensor, eps: float, weight: Tensor, bias: Tensor | None) -> bool:
    def attempt() -> None:
        from vitscope.models.layers import block_kernels

        block_kernels.begin(_one(x), gain, shift, eps, weight, bias)

    return PROOF.runs(("begin", *weight.shape, bias is None), x, attempt)


def _runs_end(x: Tensor, mixed: Tensor | None, *rest: *End) -> bool:
    """`mixed` may be left out where only the question is asked."""
    proj, fc1, act = rest[0], rest[5], rest[-1]

    def attempt() -> None:
        from vitscope.models.layers import block_kernels

        one = _one(x)
        block_kernels.end(one, None if proj is None else one.new_zeros(1, 1, proj.shape[1]), *rest)

    return PROOF.runs(("end", 0 if proj is None else proj.shape[1], *fc1.shape, act), x, attempt)


def _one(x: Tensor) -> Tensor:
    """A single token."""
    return torch.zeros((1, 1, x.shape[-1]), device=x.device, dtype=x.dtype)
