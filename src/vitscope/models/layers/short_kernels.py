"""Triton kernels of attention over few tokens: one program does one head of one image, all its keys at hand.

N tokens, h heads, d numbers per head. Needs Triton, so `short_attention` imports it when a kernel is first tried.
"""
# ruff: noqa: N803  (compile-time constants are written in capitals)
# pyright: reportArgumentType=false, reportCallIssue=false, reportMissingImports=false

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from vitscope.core.errors import InputError, expected

LOG2_E = tl.constexpr(1.4426950408889634)


@dataclass(frozen=True)
class Cut:
    """How a kernel's work is cut: queries in a tile, warps in a program, most registers of a thread."""

    rows: int
    warps: int
    registers: int | None = None


# (Tokens, numbers per head) up to -> cut, the first that fits; fixed, so that results repeat to the bit. Compare
# others with bench/short_attention.py --tune. Without Hopper's matrix units large tiles would not fit the registers.
Table = dict[tuple[int, int], Cut]
FORWARD: Table = {
    (16, 64): Cut(16, 1),
    (32, 64): Cut(32, 2),
    (64, 64): Cut(64, 4),
    (128, 64): Cut(128, 8),
    (256, 64): Cut(64, 4),
}
BACKWARD: Table = {
    (16, 64): Cut(16, 1),
    (32, 64): Cut(32, 2),
    (64, 64): Cut(64, 4),
    (96, 64): Cut(128, 8, registers=128),
    (128, 64): Cut(128, 8),
    (256, 32): Cut(16, 8),
    (256, 64): Cut(32, 8),
}
NOT_HOPPER: Table = {(64, 64): Cut(16, 4), (256, 64): Cut(16, 8)}


def forward(qkv: Tensor, num_heads: int, cut: Cut | None = None) -> Tensor:
    """(B, N, 3 h d) contiguous -> (B, N, h d)."""
    b, n, width = qkv.shape
    out = qkv.new_empty(b, n, width // 3)
    _run(_forward_kernel, (qkv, out), num_heads, cut or _listed(FORWARD, qkv, num_heads))
    return out


def backward(qkv: Tensor, dout: Tensor, num_heads: int, cut: Cut | None = None) -> Tensor:
    """The gradient of qkv, from qkv (B, N, 3 h d) and the gradient of the output (B, N, h d), both contiguous."""
    dqkv = torch.empty_like(qkv)
    _run(_backward_kernel, (qkv, dout, dqkv), num_heads, cut or _listed(BACKWARD, qkv, num_heads))
    return dqkv


def _run(kernel: triton.JITFunction, tensors: tuple[Tensor, ...], num_heads: int, cut: Cut) -> None:
    b, n, width = tensors[0].shape
    dim = width // (3 * num_heads)
    keys, more = key_tiles(n)
    limits = {} if cut.registers is None else {"maxnreg": cut.registers}
    with torch.cuda.device_of(tensors[0]):
        kernel[(b * num_heads,)](
            *tensors,
            n,
            HEADS=num_heads,
            DIM=dim,
            SCALE=dim**-0.5,
            KEYS=keys,
            MORE=more,
            ROWS=cut.rows,
            END=triton.cdiv(n, cut.rows) * cut.rows,
            num_warps=cut.warps,
            num_stages=1,
            enable_fp_fusion=True,
            **limits,
        )


def _listed(table: Table, qkv: Tensor, num_heads: int) -> Cut:
    n, dim = qkv.shape[1], qkv.shape[2] // (3 * num_heads)
    if qkv.is_cuda and torch.cuda.get_device_capability(qkv.device)[0] != 9:
        table = NOT_HOPPER
    for (tokens, most), cut in table.items():
        if n <= tokens and dim <= most:
            return cut
    wanted = "at most {} tokens of {} numbers per head".format(*max(table))
    raise InputError(expected("qkv", wanted, f"{n} of {dim}"), where="short_kernels")


def key_tiles(n: int) -> tuple[int, int]:
    """Lengths of the one or two tiles that hold n keys: powers of two, so that 65 are 64 + 16 and not 128."""
    whole = max(16, triton.next_power_of_2(n))
    more = max(16, triton.next_power_of_2(n - whole // 2))
    return (whole // 2, more) if n > 64 and more < whole // 2 else (whole, 0)


# All keys of a query are in KEYS and MORE (which may be 0): its softmax needs no second look. The backward pass makes
# it anew from q and k (the idea is FlashAttention's, Dao et al. 2022, arXiv 2205.14135), and what FlashAttention takes
# from the output, sum(out * dout), it has as sum(w * dw): the forward pass need not leave anything behind.


@triton.jit
def _forward_kernel(
    qkv,
    out,
    n,
    HEADS: tl.constexpr,
    DIM: tl.constexpr,
    SCALE: tl.constexpr,
    KEYS: tl.constexpr,
    MORE: tl.constexpr,
    ROWS: tl.constexpr,
    END: tl.constexpr,
):
    width: tl.constexpr = HEADS * DIM
    image, head = (tl.program_id(0) // HEADS).to(tl.int64), tl.program_id(0) % HEADS
    q_at = qkv + image * n * 3 * width + head * DIM
    out_at = out + image * n * width + head * DIM
    k = _load(q_at + width, n, 0, 3 * width, KEYS, DIM)
    v = _load(q_at + 2 * width, n, 0, 3 * width, KEYS, DIM)
    k_more, v_more = k, v
    if MORE:
        k_more = _load(q_at + width, n, KEYS, 3 * width, MORE, DIM)
        v_more = _load(q_at + 2 * width, n, KEYS, 3 * width, MORE, DIM)
    for first in range(0, END, ROWS):
        q = _load(q_at, n, first, 3 * width, ROWS, DIM)
        w, w_more, total = _softmax(q, k, k_more, n, SCALE, KEYS, MORE)
        mixed = tl.dot(w.to(v.dtype), v)
        if MORE:
            mixed = tl.dot(w_more.to(v.dtype), v_more, mixed)
        _store(out_at, mixed / total[:, None], n, first, width, ROWS, DIM)


@triton.jit
def _backward_kernel(
    qkv,
    dout,
    dqkv,
    n,
    HEADS: tl.constexpr,
    DIM: tl.constexpr,
    SCALE: tl.constexpr,
    KEYS: tl.constexpr,
    MORE: tl.constexpr,
    ROWS: tl.constexpr,
    END: tl.constexpr,
):
    width: tl.constexpr = HEADS * DIM
    image, head = (tl.program_id(0) // HEADS).to(tl.int64), tl.program_id(0) % HEADS
    q_at = qkv + image * n * 3 * width + head * DIM
    dq_at = dqkv + image * n * 3 * width + head * DIM
    dout_at = dout + image * n * width + head * DIM
    k = _load(q_at + width, n, 0, 3 * width, KEYS, DIM)
    v = _load(q_at + 2 * width, n, 0, 3 * width, KEYS, DIM)
    dk = tl.zeros((KEYS, DIM), tl.float32)
    dv = tl.zeros((KEYS, DIM), tl.float32)
    k_more, v_more, dk_more, dv_more = k, v, dk, dv
    if MORE:
        k_more = _load(q_at + width, n, KEYS, 3 * width, MORE, DIM)
        v_more = _load(q_at + 2 * width, n, KEYS, 3 * width, MORE, DIM)
        dk_more = tl.zeros((MORE, DIM), tl.float32)
        dv_more = tl.zeros((MORE, DIM), tl.float32)
    for first in range(0, END, ROWS):
        q = _load(q_at, n, first, 3 * width, ROWS, DIM)
        do = _load(dout_at, n, first, width, ROWS, DIM)
        w, w_more, total = _softmax(q, k, k_more, n, SCALE, KEYS, MORE)
        w /= total[:, None]
        dw = tl.dot(do, tl.trans(v))
        dw_more, mean = dw, tl.sum(w * dw, 1)
        if MORE:
            w_more /= total[:, None]
            dw_more = tl.dot(do, tl.trans(v_more))
            mean += tl.sum(w_more * dw_more, 1)
        ds = (w * (dw - mean[:, None])).to(k.dtype)
        dv = tl.dot(tl.trans(w.to(k.dtype)), do, dv)
        dk = tl.dot(tl.trans(ds), q, dk)
        dq = tl.dot(ds, k)
        if MORE:
            ds_more = (w_more * (dw_more - mean[:, None])).to(k.dtype)
            dv_more = tl.dot(tl.trans(w_more.to(k.dtype)), do, dv_more)
            dk_more = tl.dot(tl.trans(ds_more), q, dk_more)
            dq = tl.dot(ds_more, k_more, dq)
        _store(dq_at, dq * SCALE, n, first, 3 * width, ROWS, DIM)
    _store(dq_at + width, dk * SCALE, n, 0, 3 * width, KEYS, DIM)
    _store(dq_at + 2 * width, dv, n, 0, 3 * width, KEYS, DIM)
    if MORE:
        _store(dq_at + width, dk_more * SCALE, n, KEYS, 3 * width, MORE, DIM)
        _store(dq_at + 2 * width, dv_more, n, KEYS, 3 * width, MORE, DIM)


@triton.jit
def _softmax(q, k, k_more, n, SCALE: tl.constexpr, KEYS: tl.constexpr, MORE: tl.constexpr):
    """Weights (ROWS, KEYS) and (ROWS, MORE) that are still to be divided by their sum (ROWS), and that sum."""
    scores = _scores(q, k, n, 0, SCALE, KEYS)
    scores_more, top = scores, tl.max(scores, 1)
    if MORE:
        scores_more = _scores(q, k_more, n, KEYS, SCALE, MORE)
        top = tl.maximum(top, tl.max(scores_more, 1))
    w = tl.exp2(scores - top[:, None])
    w_more, total = w, tl.sum(w, 1)
    if MORE:
        w_more = tl.exp2(scores_more - top[:, None])
        total += tl.sum(w_more, 1)
    return w, w_more, total


@triton.jit
def _scores(q, k, n, first, SCALE: tl.constexpr, KEYS: tl.constexpr):
    """q k^T / sqrt(d) as a power of two (ROWS, KEYS); beyond the last token minus infinity."""
    real = first + tl.arange(0, KEYS)[None, :] < n
    return tl.where(real, tl.dot(q, tl.trans(k)) * (SCALE * LOG2_E), float("-inf"))


@triton.jit
def _load(at, n, first, stride, ROWS: tl.constexpr, DIM: tl.constexpr):
    """Tokens `first` and on of one head (ROWS, DIM); zeros beyond the last one."""
    row = first + tl.arange(0, ROWS)[:, None]
    return tl.load(at + row * stride + tl.arange(0, DIM)[None, :], mask=row < n, other=0.0)


@triton.jit
def _store(at, values, n, first, stride, ROWS: tl.constexpr, DIM: tl.constexpr):
    row = first + tl.arange(0, ROWS)[:, None]
    tl.store(at + row * stride + tl.arange(0, DIM)[None, :], values.to(at.dtype.element_ty), mask=row < n)
