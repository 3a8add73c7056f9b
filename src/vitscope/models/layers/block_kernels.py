"""Triton kernels of a narrow block at inference: all that lies between two attentions, in one pass over the tokens.

A program holds some tokens, all their numbers at once, and goes through the weights. R tokens (batch times tokens), D
width, A width of what attention gives (h d), M neurons. Needs Triton, so `narrow_block` imports it when a kernel is
first tried.
"""
# ruff: noqa: N803, SIM108  (compile-time constants are written in capitals; Triton decides them by plain ifs)
# pyright: reportArgumentType=false, reportCallIssue=false, reportMissingImports=false

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor


@dataclass(frozen=True)
class Cut:
    """How a kernel's work is cut: tokens of a program, columns (neurons) at a time, warps, loads ahead."""

    rows: int
    columns: int
    warps: int
    stages: int


# Width -> cut; fixed, so that results repeat to the bit. Compare others with bench/narrow_block.py --tune.
BEGIN = {64: Cut(64, 64, 4, 3), 128: Cut(64, 64, 4, 3), 192: Cut(64, 64, 4, 3)}
END = {64: Cut(64, 32, 4, 3), 128: Cut(64, 32, 4, 3), 192: Cut(64, 32, 4, 3)}


def width_tiles(width: int) -> tuple[int, int]:
    """One or two powers of two that make up a width, 128 + 64 for 192; a second of 0 where one will do."""
    whole = 1 << (width.bit_length() - 1)
    return whole, width - whole


def begin(
    x: Tensor, gain: Tensor, shift: Tensor, eps: float, weight: Tensor, bias: Tensor | None, cut: Cut | None = None
) -> Tensor:
    """linear(norm(x)): (B, N, D) contiguous -> (B, N, outputs)."""
    out = x.new_empty(*x.shape[:-1], weight.shape[0])
    sizes = {"OUTPUTS": weight.shape[0], "BIAS": bias is not None}
    tensors = (x, gain, shift, weight, gain if bias is None else bias, out)
    _run(_begin_kernel, tensors, eps, sizes, cut or BEGIN[x.shape[-1]])
    return out


def end(
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
    cut: Cut | None = None,
) -> Tensor:
    """y + fc2(act(fc1(norm(y)))) of y = x + proj(mixed), or of x + proj's bias where nothing is mixed: x (B, N, D) and
    mixed (B, N, A), contiguous -> (B, N, D)."""
    out = torch.empty_like(x)
    attended = (x, x, proj_bias) if mixed is None else (mixed, proj_weight, proj_bias)
    tensors = (x, *attended, gain, shift, fc1_weight, fc1_bias, fc2_weight, fc2_bias, out)
    sizes = {"MIXED": 0 if mixed is None else mixed.shape[-1], "NEURONS": fc1_weight.shape[0], "ACT": act}
    _run(_end_kernel, tensors, eps, sizes, cut or END[x.shape[-1]])
    return out


def _run(kernel: triton.JITFunction, tensors: tuple[Tensor, ...], eps: float, sizes: dict[str, Any], cut: Cut) -> None:
    x = tensors[0]
    rows = x.numel() // x.shape[-1]
    wide, more = width_tiles(x.shape[-1])
    with torch.cuda.device_of(x):
        kernel[(triton.cdiv(rows, cut.rows),)](
            *tensors,
            rows,
            eps,
            **sizes,
            WIDE=wide,
            MORE=more,
            ROWS=cut.rows,
            COLUMNS=cut.columns,
            num_warps=cut.warps,
            num_stages=cut.stages,
            enable_fp_fusion=True,
        )


# The width lies in two tiles, WIDE and MORE (which may be 0): a tile's sides are powers of two, and 192 is none. One
# kernel serves any number of rows: what was proved with one is what runs with many.


@triton.jit(do_not_specialize=["rows"])
def _begin_kernel(
    x,
    gain,
    shift,
    weight,
    bias,
    out,
    rows,
    eps,
    OUTPUTS: tl.constexpr,
    BIAS: tl.constexpr,
    WIDE: tl.constexpr,
    MORE: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    first = tl.program_id(0).to(tl.int64) * ROWS
    a = _tokens(x, rows, first, WIDE + MORE, 0, ROWS, WIDE).to(tl.float32)
    b = a
    if MORE:
        b = _tokens(x, rows, first, WIDE + MORE, WIDE, ROWS, MORE).to(tl.float32)
    a, b = _normed(a, b, gain, shift, eps, WIDE, MORE)
    a = a.to(x.dtype.element_ty)
    b = b.to(x.dtype.element_ty)
    row = first + tl.arange(0, ROWS)[:, None]
    for column in range(0, OUTPUTS, COLUMNS):
        y = tl.dot(a, _turned(weight, column, OUTPUTS, 0, WIDE + MORE, COLUMNS, WIDE))
        if MORE:
            y = tl.dot(b, _turned(weight, column, OUTPUTS, WIDE, WIDE + MORE, COLUMNS, MORE), y)
        at = column + tl.arange(0, COLUMNS)
        if BIAS:
            y += tl.load(bias + at, mask=at < OUTPUTS, other=0.0).to(tl.float32)[None, :]
        place = out + row * OUTPUTS + at[None, :]
        tl.store(place, y.to(out.dtype.element_ty), mask=(row < rows) & (at[None, :] < OUTPUTS))


@triton.jit(do_not_specialize=["rows"])
def _end_kernel(
    x,
    mixed,
    proj_weight,
    proj_bias,
    gain,
    shift,
    fc1_weight,
    fc1_bias,
    fc2_weight,
    fc2_bias,
    out,
    rows,
    eps,
    MIXED: tl.constexpr,
    NEURONS: tl.constexpr,
    ACT: tl.constexpr,
    WIDE: tl.constexpr,
    MORE: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    dtype = x.dtype.element_ty
    first = tl.program_id(0).to(tl.int64) * ROWS
    a = _with(_tokens(x, rows, first, WIDE + MORE, 0, ROWS, WIDE).to(tl.float32), proj_bias, 0, WIDE)
    b = a
    if MORE:
        b = _with(_tokens(x, rows, first, WIDE + MORE, WIDE, ROWS, MORE).to(tl.float32), proj_bias, WIDE, MORE)
    for column in range(0, MIXED, 32):
        part = _tokens(mixed, rows, first, MIXED, column, ROWS, 32)
        a = tl.dot(part, _turned_part(proj_weight, 0, column, MIXED, WIDE, 32), a)
        if MORE:
            b = tl.dot(part, _turned_part(proj_weight, WIDE, column, MIXED, MORE, 32), b)
    na, nb = _normed(a, b, gain, shift, eps, WIDE, MORE)
    na = na.to(dtype)
    nb = nb.to(dtype)
    a = _with(a, fc2_bias, 0, WIDE)
    if MORE:
        b = _with(b, fc2_bias, WIDE, MORE)
    for neuron in range(0, NEURONS, COLUMNS):
        h = tl.dot(na, _turned(fc1_weight, neuron, NEURONS, 0, WIDE + MORE, COLUMNS, WIDE))
        if MORE:
            h = tl.dot(nb, _turned(fc1_weight, neuron, NEURONS, WIDE, WIDE + MORE, COLUMNS, MORE), h)
        at = neuron + tl.arange(0, COLUMNS)
        h = _activated(h + tl.load(fc1_bias + at, mask=at < NEURONS, other=0.0).to(tl.float32)[None, :], ACT)
        h = h.to(dtype)
        a = tl.dot(h, _turned_part(fc2_weight, 0, neuron, NEURONS, WIDE, COLUMNS), a)
        if MORE:
            b = tl.dot(h, _turned_part(fc2_weight, WIDE, neuron, NEURONS, MORE, COLUMNS), b)
    _keep(out, a, rows, first, WIDE + MORE, 0, ROWS, WIDE)
    if MORE:
        _keep(out, b, rows, first, WIDE + MORE, WIDE, ROWS, MORE)


@triton.jit
def _normed(a, b, gain, shift, eps, WIDE: tl.constexpr, MORE: tl.constexpr):
    """LayerNorm of tokens whose numbers lie in `a` (ROWS, WIDE) and `b` (ROWS, MORE), in float32."""
    mean = tl.sum(a, 1)
    if MORE:
        mean += tl.sum(b, 1)
    mean = mean / (WIDE + MORE)
    a -= mean[:, None]
    variance = tl.sum(a * a, 1)
    if MORE:
        b -= mean[:, None]
        variance += tl.sum(b * b, 1)
    scale = tl.rsqrt(variance / (WIDE + MORE) + eps)
    at = tl.arange(0, WIDE)
    a = a * scale[:, None] * tl.load(gain + at).to(tl.float32)[None, :] + tl.load(shift + at).to(tl.float32)[None, :]
    if MORE:
        at = WIDE + tl.arange(0, MORE)
        b = b * scale[:, None] * tl.load(gain + at).to(tl.float32)[None, :]
        b += tl.load(shift + at).to(tl.float32)[None, :]
    return a, b


@triton.jit
def _activated(h, ACT: tl.constexpr):
    if ACT == "gelu":
        h = 0.5 * h * (1.0 + tl.erf(h * 0.7071067811865476))
    elif ACT == "gelu_tanh":
        h = h * tl.sigmoid(1.5957691216057308 * (h + 0.044715 * h * h * h))
    elif ACT == "quick_gelu":
        h = h * tl.sigmoid(1.702 * h)
    elif ACT == "silu":
        h = h * tl.sigmoid(h)
    else:
        tl.static_assert(ACT == "relu")
        h = tl.maximum(h, 0.0, propagate_nan=tl.PropagateNan.ALL)
    return h


@triton.jit
def _with(values, bias, first: tl.constexpr, LENGTH: tl.constexpr):
    return values + tl.load(bias + first + tl.arange(0, LENGTH)).to(tl.float32)[None, :]


@triton.jit
def _tokens(at, rows, first, stride: tl.constexpr, column, ROWS: tl.constexpr, LENGTH: tl.constexpr):
    """Numbers `column` and on of the tokens `first` and on (ROWS, LENGTH); zeros beyond the last token."""
    row = first + tl.arange(0, ROWS)[:, None]
    return tl.load(at + row * stride + column + tl.arange(0, LENGTH)[None, :], mask=row < rows, other=0.0)


@triton.jit
def _keep(at, values, rows, first, stride: tl.constexpr, column, ROWS: tl.constexpr, LENGTH: tl.constexpr):
    row = first + tl.arange(0, ROWS)[:, None]
    place = at + row * stride + column + tl.arange(0, LENGTH)[None, :]
    tl.store(place, values.to(at.dtype.element_ty), mask=row < rows)


@triton.jit
def _turned(at, row, ROW_COUNT: tl.constexpr, column, STRIDE: tl.constexpr, ROWS: tl.constexpr, LENGTH: tl.constexpr):
    """Rows `row` and on of a weight, some of their numbers, as columns (LENGTH, ROWS); zeros beyond the last row."""
    line = row + tl.arange(0, ROWS)[:, None]
    place = at + line * STRIDE + column + tl.arange(0, LENGTH)[None, :]
    if ROW_COUNT % ROWS == 0:
        part = tl.load(place)
    else:
        part = tl.load(place, mask=line < ROW_COUNT, other=0.0)
    return tl.trans(part)


@triton.jit
def _turned_part(at, row, column, STRIDE: tl.constexpr, ROWS: tl.constexpr, LENGTH: tl.constexpr):
    """Some numbers, `column` and on, of a weight's rows `row` and on, as columns (LENGTH, ROWS); zeros beyond the last
    number of a row."""
    number = column + tl.arange(0, LENGTH)[None, :]
    place = at + (row + tl.arange(0, ROWS))[:, None] * STRIDE + number
    if STRIDE % LENGTH == 0:
        part = tl.load(place)
    else:
        part = tl.load(place, mask=number < STRIDE, other=0.0)
    return tl.trans(part)
