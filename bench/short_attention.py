"""Attention over few tokens: our one-pass kernels against scaled_dot_product_attention, from packed qkv and back to it.

    python bench/short_attention.py           # proves the numbers right, then times
    python bench/short_attention.py --tune    # also every other way to cut the kernels, per shape

Needs a CUDA GPU. Every call is timed as a replayed CUDA graph, as in a captured training step: no launches in between.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import astuple

import torch
import torch.nn.functional as F
from torch import Tensor

from throughput import release
from vitscope.core.cuda_graph import record
from vitscope.infer.benchmark.surroundings import surroundings
from vitscope.infer.benchmark.timing import Call, Clock, interleaved, paired_ratio, summary
from vitscope.models.layers.short_attention import can_take, short_attention, works

#         batch, tokens, heads, numbers per head; the last is one image: is it slower where the card is nearly empty?
SHAPES = (
    (1024, 65, 3, 64),
    (1024, 65, 6, 64),
    (512, 65, 3, 64),
    (128, 16, 8, 32),
    (256, 197, 12, 64),
    (256, 197, 6, 64),
    (1, 197, 12, 64),
)
Cuts = dict[int, tuple[tuple[int, int, int | None], ...]]
"""Tokens -> rows, warps, most registers."""
FORWARD: Cuts = {
    65: ((128, 8, None), (64, 4, None), (32, 4, None), (16, 4, None), (16, 2, None)),
    197: ((64, 4, None), (128, 8, None), (64, 8, None), (32, 8, None), (16, 4, None)),
}
BACKWARD: Cuts = {
    65: ((128, 8, 128), (128, 8, None), (16, 4, None), (16, 4, 128), (32, 4, 168), (64, 4, None)),
    197: ((32, 8, None), (16, 8, None), (16, 16, None), (32, 16, None)),
}
TUNED = ((1024, 65, 3, 64), (256, 197, 12, 64))


def sdpa(qkv: Tensor, heads: int) -> Tensor:
    """As `Attention.forward` does it where `is_short` says no."""
    b, n, _ = qkv.shape
    q, k, v = qkv.reshape(b, n, 3, heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
    return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


WAYS = {"SDPA": sdpa, "ours": short_attention}


def drawn(shape: tuple[int, int, int, int]) -> tuple[Tensor, Tensor]:
    b, n, heads, dim = shape
    qkv = torch.randn(b, n, 3 * heads * dim, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    return qkv, torch.randn(b, n, heads * dim, device="cuda", dtype=torch.bfloat16)


def some_images(shape: tuple[int, int, int, int]) -> tuple[Tensor, Tensor]:
    """Up to eight of them; stops where the kernels cannot take or run them. Faster or not is yet to be found out."""
    qkv, dout = drawn((min(shape[0], 8), *shape[1:]))
    if not (can_take(qkv, shape[2]) and works(qkv, shape[2])):
        sys.exit(f"{shape}: this GPU keeps scaled_dot_product_attention, so there is nothing to time")
    return qkv, dout


def prove(shape: tuple[int, int, int, int]) -> str:
    """Both against float64 on some images; stops if ours is over 1.5 times as far off, or differs on repetition."""
    heads = shape[2]
    qkv, dout = some_images(shape)
    b, n, _ = qkv.shape
    wide = qkv.detach().double().requires_grad_()
    q, k, v = wide.reshape(b, n, 3, heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
    right = ((q @ k.mT * shape[3] ** -0.5).softmax(-1) @ v).transpose(1, 2).flatten(2)
    wanted = [right, *torch.autograd.grad(right, wide, dout.double())]
    found = {name: [out := way(qkv, heads), *torch.autograd.grad(out, qkv, dout)] for name, way in WAYS.items()}
    again = [out := short_attention(qkv, heads), *torch.autograd.grad(out, qkv, dout)]
    if not all(torch.equal(one, other) for one, other in zip(found["ours"], again, strict=True)):
        sys.exit(f"{shape}: not the same bits on repetition")
    off = {
        name: [float((one.double() - other).norm() / other.norm()) for one, other in zip(values, wanted, strict=True)]
        for name, values in found.items()
    }
    if any(not mine <= 1.5 * theirs + 1e-4 for mine, theirs in zip(off["ours"], off["SDPA"], strict=True)):
        sys.exit(f"{shape}: further from float64 than it may be: {off}")
    return "; ".join(f"{name} {out:.1e} / {grad:.1e}" for name, (out, grad) in off.items())


def graphed(call: Call, calls: int = 10) -> Call:
    """The call, so often in one CUDA graph."""
    graph, _ = record(lambda: [call() for _ in range(calls)], torch.device("cuda"))
    return graph.replay


def microseconds(calls: dict[str, Call], rounds: int, calls_in_graph: int = 10) -> dict[str, list[float]]:
    replays = {name: graphed(call, calls_in_graph) for name, call in calls.items()}
    seconds = interleaved(replays, Clock(torch.device("cuda")), rounds=rounds, least_seconds=0.01)
    return {name: [1e6 * value / calls_in_graph for value in values] for name, values in seconds.items()}


def compared(shape: tuple[int, int, int, int], rounds: int) -> list[str]:
    """Cells: forward, then forward and backward; us of each way, SDPA / ours."""
    heads = shape[2]
    qkv, dout = drawn(shape)
    still = qkv.detach()
    cells: list[str] = []
    forward: dict[str, Call] = {name: lambda way=way: way(still, heads) for name, way in WAYS.items()}
    with_backward: dict[str, Call] = {
        name: lambda way=way: torch.autograd.grad(way(qkv, heads), qkv, dout) for name, way in WAYS.items()
    }
    for calls in (forward, with_backward):
        times = microseconds(calls, rounds)
        ratio = paired_ratio(times["SDPA"], times["ours"])
        cells += [f"{summary(times[name]).median:.1f}" for name in WAYS]
        cells.append(f"{ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f})")
    return cells


def tuned(shape: tuple[int, int, int, int], rounds: int) -> None:
    from vitscope.models.layers import short_kernels

    b, n, heads, dim = shape
    qkv, dout = (value.detach() for value in drawn(shape))
    right = {"forward": short_kernels.forward(qkv, heads), "backward": short_kernels.backward(qkv, dout, heads)}
    for pass_, candidates in (("forward", FORWARD[n]), ("backward", BACKWARD[n])):
        calls: dict[str, Call] = {}
        for cut in (short_kernels.Cut(*candidate) for candidate in candidates):
            name = f"rows {cut.rows}, warps {cut.warps}, registers {cut.registers}"

            def call(cut: short_kernels.Cut = cut, forward: bool = pass_ == "forward") -> Tensor:
                if forward:
                    return short_kernels.forward(qkv, heads, cut)
                return short_kernels.backward(qkv, dout, heads, cut)

            try:
                off = float((call().float() - right[pass_].float()).norm() / right[pass_].float().norm())
            except Exception as error:  # too much for the card: the others are still worth a look
                print(f"{astuple(cut)}: {str(error).splitlines()[0][:80]}")
                continue
            if not off < 1e-2:
                sys.exit(f"{name}: {off:.1e} off")
            calls[name] = call
        times = {name: summary(values).median for name, values in microseconds(calls, rounds).items()}
        for name in sorted(times, key=lambda name: times[name]):
            print(f"{b} x {n} x {heads} x {dim} {pass_}: {times[name]:6.1f} us  {name}", flush=True)
    release(qkv.device)


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--rounds", type=int, default=7, help="rounds of timing (default: 7)")
    parser.add_argument("--tune", action="store_true", help="compare ways to cut the kernels")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("bench/short_attention.py needs a CUDA GPU: the kernels run nowhere else")
    torch.manual_seed(0)
    for shape in SHAPES:
        print(f"{shape} off float64, output / gradient: {prove(shape)}", flush=True)
    if args.tune:
        for shape in TUNED:
            tuned(shape, args.rounds)
    heads = ["batch", "N", "h", "d", "forward: SDPA, us", "ours, us", "SDPA / ours"]
    heads += ["with backward: SDPA, us", "ours, us", "SDPA / ours"]
    lines = [f"| {' | '.join(heads)} |", "|" + " ---: |" * len(heads)]
    for shape in SHAPES:
        lines.append(f"| {' | '.join([*map(str, shape), *compared(shape, args.rounds)])} |")
        release(torch.device("cuda"))
    for word, fact in surroundings(torch.device("cuda")).items():
        print(f"- {word}: {fact}")
    print("\n" + "\n".join(lines), flush=True)


if __name__ == "__main__":
    main()
