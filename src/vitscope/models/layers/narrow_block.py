"""A narrow pre-norm block in a compiled network, at inference on a GPU, in three kernels: norm and q, k, v; attention;
everything after it.

Layers this narrow cost little arithmetic. Launched one by one they spend their time reading and writing tokens, and a
network that has lost half of its units would be hardly faster than before. B batch, N tokens, D width, A width of what
attention gives (heads times numbers per head), M neurons.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitscope.models.layers.attention import Attention
from vitscope.models.layers.drop import DropPath
from vitscope.models.layers.empty import EmptyAttention, OnlyBias
from vitscope.models.layers.kernel_proof import HAS_TRITON, Proof, is_exported
from vitscope.models.layers.mlp import ACTIVATIONS, Mlp

try:
    from torch.nn.modules.module import _has_any_global_hook
except ImportError:  # it is torch's own; where it went, nobody can tell, and layers go one by one

    def _has_any_global_hook() -> Any:
        return True


DTYPES = (torch.bfloat16, torch.float16)
LEAST_TOKENS = {64: 1024, 128: 4096, 192: 8192}
"""By width, of all pictures together: a program takes 64 of them, and with fewer programs the card is not full. Wider
tokens would not fit into a program beside their sums, and have enough arithmetic to hide their way."""
STEP = 32
"""What the kernels take of A at a time."""
PROOF = Proof("what lies between two attentions")


def is_narrow(block: nn.Module, x: Tensor) -> bool:
    """Whether `narrow_block` is the way to go: it can take it, and says what the layers would say."""
    return can_take(x) and is_as_built(block, x)


def can_take(x: Tensor) -> bool:
    """Whether tokens (B, N, D) are what the kernels are written for: on a GPU they were measured on, in half precision,
    narrow, many, without gradient, and in a network that is compiled. Launched one by one from Python they wait for it
    as longer ones do."""
    if not torch.compiler.is_compiling() or is_exported() or torch.is_grad_enabled():
        return False
    if not (HAS_TRITON and x.is_cuda and x.dtype in DTYPES and x.ndim == 3 and x.shape[2] in LEAST_TOKENS):
        return False
    many = x.shape[0] * x.shape[1] >= LEAST_TOKENS[x.shape[2]]
    return many and x.is_contiguous() and not torch.is_autocast_enabled("cuda") and is_measured(x.device)


def is_as_built(block: Any, x: Tensor) -> bool:
    """Whether a block computes what these kernels do, in the precision of its tokens, and nobody listens inside: hooks
    would hear nothing, and a part that was exchanged, or has weights of a kind of its own, would not be asked."""
    return _has_usual_parts(block) and _has_usual_weights(block, x) and not _is_overheard(block)


def _has_usual_parts(block: Any) -> bool:
    attn, mlp, norms = block.attn, block.mlp, [block.norm2]
    if type(attn) not in (Attention, EmptyAttention) or type(mlp) is not Mlp or block.norm_order != "pre":
        return False
    linears = [mlp.fc1, mlp.fc2]
    if type(attn) is Attention:
        norms, linears = [*norms, block.norm1], [*linears, attn.qkv, attn.proj]
    elif type(attn.proj) is not OnlyBias:
        return False
    return (
        ACTIVATIONS.get(mlp.act_name) is mlp.act
        and all(type(norm) is nn.LayerNorm for norm in norms)
        and all(type(linear) is nn.Linear for linear in linears)
        and type(attn.proj_drop) is type(mlp.drop) is nn.Dropout
        and type(block.drop_path1) is type(block.drop_path2) is DropPath
        and type(block.ls1) is type(block.ls2) is nn.Identity
    )


def _has_usual_weights(block: Any, x: Tensor) -> bool:
    """All there, of the shapes they were built with, one number after the other beside the tokens."""
    attn, fc1, fc2, width = block.attn, block.mlp.fc1, block.mlp.fc2, x.shape[2]
    neurons = fc1.weight.shape[0]
    wanted = [*_pair(block.norm2, width), *_pair(fc1, neurons, width), *_pair(fc2, width, neurons)]
    if attn.num_heads:
        inner = attn.num_heads * attn.head_dim
        wanted += [*_pair(block.norm1, width), *_pair(attn.proj, width, inner)]
        wanted += _pair(attn.qkv, 3 * inner, width)[: 1 if attn.qkv.bias is None else 2]
        if inner % STEP:
            return False
    else:
        wanted.append((attn.proj.bias, (width,)))
    return all(
        type(weight) is nn.Parameter
        and weight.shape == shape
        and weight.dtype == x.dtype
        and weight.device == x.device
        and weight.is_contiguous()
        for weight, shape in wanted
    )


def _pair(layer: Any, *shape: int) -> list[tuple[Any, tuple[int, ...]]]:
    """A layer's weight and bias, each with the shape it should have."""
    return [(layer.weight, shape), (layer.bias, shape[:1])]


def _is_overheard(block: Any) -> bool:
    """Whether somebody listens to a part, trains it, or has put another `forward` into it."""
    parts = [part for part in block.modules() if part is not block]
    return bool(_has_any_global_hook()) or any(
        part.training or part._forward_hooks or part._forward_pre_hooks or "forward" in part.__dict__ for part in parts
    )


def narrow_block(block: Any, x: Tensor, rope: tuple[Tensor, Tensor] | None = None) -> Tensor:
    """What `block` says of the tokens (B, N, D)."""
    mixed = block.attn.mix(_begin(x, *_beginning_of(block)), rope) if block.attn.num_heads else None
    return _end(x, mixed, *_end_of(block))


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


@torch.library.custom_op("vitscope::begin_block", mutates_args=())
def _begin(x: Tensor, gain: Tensor, shift: Tensor, eps: float, weight: Tensor, bias: Tensor | None) -> Tensor:
    """linear(norm(x)): (B, N, D) -> (B, N, outputs)."""
    if not _runs_beginning(x, gain, shift, eps, weight, bias):
        return F.linear(F.layer_norm(x, x.shape[-1:], gain, shift, eps), weight, bias)
    from vitscope.models.layers import block_kernels

    return block_kernels.begin(x.contiguous(), gain, shift, eps, weight, bias)


@torch.library.custom_op("vitscope::end_block", mutates_args=())
def _end(
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
    if not _runs_end(x, *rest):
        y = x + (proj_bias if mixed is None or proj_weight is None else F.linear(mixed, proj_weight, proj_bias))
        h = F.linear(F.layer_norm(y, y.shape[-1:], gain, shift, eps), fc1_weight, fc1_bias)
        return y + F.linear(ACTIVATIONS[act](h), fc2_weight, fc2_bias)
    from vitscope.models.layers import block_kernels

    return block_kernels.end(x.contiguous(), None if mixed is None else mixed.contiguous(), *rest)


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


def _runs_end(x: Tensor, *rest: *End) -> bool:
    proj, fc1, act = rest[0], rest[5], rest[-1]

    def attempt() -> None:
        from vitscope.models.layers import block_kernels

        one = _one(x)
        block_kernels.end(one, None if proj is None else one.new_zeros(1, 1, proj.shape[1]), *rest)

    return PROOF.runs(("end", 0 if proj is None else proj.shape[1], *fc1.shape, act), x, attempt)


def _one(x: Tensor) -> Tensor:
    """A single token."""
    return torch.zeros((1, 1, x.shape[-1]), device=x.device, dtype=x.dtype)
