"""Narrow blocks at inference: ours, in three kernels, against the same layers compiled one by one.

    python bench/narrow_block.py            # proves the numbers right, then times parts of a block and whole networks
    python bench/narrow_block.py --tune     # also every other way to cut the kernels, by width
    python bench/narrow_block.py --kernels  # also where a dense vit_tiny spends its time, kernel by kernel

Needs a CUDA GPU. Networks are launched as `vitscope bench` and `vitscope sparsify` launch them: compiled, in one CUDA
graph, bf16. The smaller ones have lost half of their heads and neurons: everywhere alike, or as it came in training.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import astuple
from itertools import product

import torch
import torch.nn.functional as F
from torch import Tensor

from short_attention import microseconds
from throughput import release
from vitscope.infer.benchmark.surroundings import surroundings
from vitscope.infer.benchmark.timing import Call, Clock, interleaved, paired_ratio, summary
from vitscope.infer.launched import Launch, launched
from vitscope.models.build import build_model
from vitscope.models.config import ViTConfig
from vitscope.models.layers import block, narrow_block
from vitscope.models.layers.mlp import ACTIVATIONS

DEVICE = torch.device("cuda")
LAUNCH: Launch = "compiled_graph"
#         rows, width, attention's width, neurons
SHAPES = (
    (16640, 192, 192, 384),
    (8320, 192, 192, 384),
    (2080, 192, 192, 384),
    (16640, 192, 64, 192),
    (16640, 128, 128, 512),
    (4160, 128, 128, 512),
    (1025, 64, 32, 40),
)
TUNED = (SHAPES[0], SHAPES[3], SHAPES[4])
CUTS = tuple(product((64, 128), (32, 64), (4, 8), (2, 3)))
"""Rows, columns, warps, stages."""

TINY = {"img_size": 32, "patch_size": 4, "embed_dim": 192, "depth": 9, "head_dim": 64, "num_classes": 10}
NETWORKS: dict[str, dict[str, object]] = {
    "dense": {"num_heads": 3, "mlp_dim": 384},
    "half, alike": {"num_heads": (2, 1, 2, 1, 2, 1, 2, 1, 2), "mlp_dim": 192},
    "half, as rsst left it": {
        "num_heads": (3, 3, 2, 2, 1, 0, 0, 1, 2),
        "mlp_dim": (320, 264, 240, 192, 144, 96, 96, 152, 272),
    },
}


def tokens_and_weights(shape: tuple[int, int, int, int]) -> tuple[Tensor, Tensor, list[Tensor], list[Tensor]]:
    """x, what attention mixed, and the weights of both kernels: norm's, qkv's; proj's, norm's, fc1's, fc2's."""
    rows, width, mixed, neurons = shape

    def drawn(*size: int, scale: float = 1.0) -> Tensor:
        return (scale * torch.randn(size, device=DEVICE)).bfloat16()

    def linear(outputs: int, inputs: int) -> list[Tensor]:
        return [drawn(outputs, inputs, scale=inputs**-0.5), drawn(outputs, scale=0.1)]

    begin = [drawn(width), drawn(width), *linear(3 * mixed, width)]
    end = [*linear(width, mixed), drawn(width), drawn(width), *linear(neurons, width), *linear(width, neurons)]
    return drawn(1, rows, width), drawn(1, rows, mixed), begin, end


def plain_begin(x: Tensor, gain: Tensor, shift: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.linear(F.layer_norm(x, x.shape[-1:], gain, shift, 1e-6), weight, bias)


def plain_end(x: Tensor, mixed: Tensor, *weights: Tensor) -> Tensor:
    proj_weight, proj_bias, gain, shift, fc1_weight, fc1_bias, fc2_weight, fc2_bias = weights
    y = x + F.linear(mixed, proj_weight, proj_bias)
    h = F.linear(F.layer_norm(y, y.shape[-1:], gain, shift, 1e-6), fc1_weight, fc1_bias)
    return y + F.linear(ACTIVATIONS["gelu"](h), fc2_weight, fc2_bias)


def our_begin(x: Tensor, gain: Tensor, shift: Tensor, weight: Tensor, bias: Tensor, cut: object = None) -> Tensor:
    from vitscope.models.layers import block_kernels

    return block_kernels.begin(x, gain, shift, 1e-6, weight, bias, cut)  # pyright: ignore[reportArgumentType]


def our_end(x: Tensor, mixed: Tensor, *weights: Tensor, cut: object = None) -> Tensor:
    from vitscope.models.layers import block_kernels

    proj, norm, mlp = weights[:2], weights[2:4], weights[4:]
    return block_kernels.end(x, mixed, *proj, *norm, 1e-6, *mlp, "gelu", cut)  # pyright: ignore


def off(given: Tensor, wanted: Tensor) -> float:
    return float((given.double() - wanted).norm() / wanted.norm())


def prove(shape: tuple[int, int, int, int]) -> str:
    """Both against float64; stops where ours is over 1.5 times as far off as the layers one by one, or changes."""
    x, mixed, begin, end = tokens_and_weights(shape)
    parts = []
    for ours, plain, given in ((our_begin, plain_begin, (x, *begin)), (our_end, plain_end, (x, mixed, *end))):
        wanted = plain(*(value.double() for value in given))
        mine, theirs = off(ours(*given), wanted), off(plain(*given), wanted)
        if not mine <= 1.5 * theirs + 1e-4:
            sys.exit(f"{shape}, {ours.__name__}: {mine:.1e} off float64; layers one by one: {theirs:.1e}")
        if not torch.equal(ours(*given), ours(*given)):
            sys.exit(f"{shape}, {ours.__name__}: not the same bits on repetition")
        parts.append(f"{ours.__name__} {mine:.1e}, plain {theirs:.1e}")
    return "; ".join(parts)


def tune(shape: tuple[int, int, int, int], rounds: int) -> None:
    from vitscope.models.layers.block_kernels import Cut

    x, mixed, begin, end = tokens_and_weights(shape)
    for ours, plain, given in ((our_begin, plain_begin, (x, *begin)), (our_end, plain_end, (x, mixed, *end))):
        compiled = torch.compile(plain, dynamic=False)
        calls: dict[str, Call] = {"compiled, layer by layer": lambda given=given, way=compiled: way(*given)}
        right = plain(*given)
        for cut in (Cut(*numbers) for numbers in CUTS):
            if cut.rows == 128 and cut.warps == 4:
                continue  # more sums than a thread has registers
            try:
                wrong = off(ours(*given, cut=cut), right.double())
            except Exception:  # too much for the card: the others are still worth a look
                continue
            if not wrong < 2e-2:
                sys.exit(f"{cut}: {wrong:.1e} off")
            calls[f"rows, columns, warps, stages {astuple(cut)}"] = lambda given=given, cut=cut, way=ours: way(
                *given, cut=cut
            )
        times = {name: summary(values).median for name, values in microseconds(calls, rounds).items()}
        best = sorted(times, key=lambda name: times[name])
        for name in [*best[:4], *(name for name in best[4:] if name.startswith("compiled"))]:
            print(f"{shape} {ours.__name__}: {times[name]:6.1f} us  {name}", flush=True)
        release(DEVICE)


def compare_parts(shape: tuple[int, int, int, int], rounds: int) -> str:
    x, mixed, begin, end = tokens_and_weights(shape)
    cells = [*map(str, shape)]
    for ours, plain, given in ((our_begin, plain_begin, (x, *begin)), (our_end, plain_end, (x, mixed, *end))):
        compiled = torch.compile(plain, dynamic=False)
        torch._dynamo.reset()
        calls: dict[str, Call] = {
            "plain": lambda given=given, way=compiled: way(*given),
            "ours": lambda given=given, way=ours: way(*given),
        }
        times = microseconds(calls, rounds)
        ratio = paired_ratio(times["plain"], times["ours"])
        cells += [f"{summary(times[name]).median:.1f}" for name in calls]
        cells.append(f"{ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f})")
    release(DEVICE)
    return f"| {' | '.join(cells)} |"


@contextmanager
def layer_by_layer() -> Iterator[None]:
    """Blocks as they are without these kernels."""
    asked = block.is_narrow
    block.is_narrow = lambda *_: False
    try:
        yield
    finally:
        block.is_narrow = asked


def network(name: str) -> torch.nn.Module:
    torch.manual_seed(0)
    return build_model(ViTConfig(**TINY, **NETWORKS[name])).to(DEVICE, torch.bfloat16).eval()  # pyright: ignore


def forwards(batch: int) -> dict[str, Call]:
    """Every network both ways, as they are served; how far each is off float64 is printed."""
    images = torch.randn(batch, 3, 32, 32, device=DEVICE, dtype=torch.bfloat16)
    calls: dict[str, Call] = {}
    for name in NETWORKS:
        model = network(name)
        said: list[Tensor] = []
        for way in ("ours", "layer by layer"):
            run: Callable[[Tensor], Tensor] = launched(model.forward, LAUNCH, device=DEVICE, batch_size=batch)
            with torch.inference_mode():
                if way == "ours":
                    said.append(run(images))
                else:
                    with layer_by_layer():
                        said.append(run(images))
                        said.append(network(name).double().forward(images.double()))

            def replay(run: Callable[[Tensor], Tensor] = run) -> None:
                with torch.inference_mode():
                    run(images)

            calls[f"{name}: {way}"] = replay
        mine, theirs = off(said[0], said[2]), off(said[1], said[2])
        print(f"{name}, batch {batch}: off float64 {mine:.1e}; layer by layer {theirs:.1e}", flush=True)
    return calls


def compare(batch: int, rounds: int) -> list[str]:
    times = interleaved(forwards(batch), Clock(DEVICE), rounds=rounds, least_seconds=0.05)
    lines = []
    for name in NETWORKS:
        ours, plain = times[f"{name}: ours"], times[f"{name}: layer by layer"]
        gain = paired_ratio(plain, ours)
        small = {
            way: paired_ratio(times[f"dense: {way}"], times[f"{name}: {way}"]) for way in ("ours", "layer by layer")
        }
        cells = [name, str(batch), *(f"{1e3 * summary(values).median:.3f}" for values in (plain, ours))]
        cells += [f"{gain.median:.2f} ({gain.low:.2f} to {gain.high:.2f})"]
        cells += [f"{ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f})" for ratio in reversed(small.values())]
        lines.append(f"| {' | '.join(cells)} |")
    release(DEVICE)
    return lines


def show_kernels(batch: int) -> None:
    """Microseconds of a forward pass by kernel, both ways."""
    images = torch.randn(batch, 3, 32, 32, device=DEVICE, dtype=torch.bfloat16)
    for way in ("ours", "layer by layer"):
        run = launched(network("dense").forward, "compiled", device=DEVICE, batch_size=batch)
        with torch.inference_mode(), nullcontext() if way == "ours" else layer_by_layer():
            for _ in range(3):
                run(images)
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
                run(images)
                torch.cuda.synchronize()
        spent: Counter[str] = Counter()
        count: Counter[str] = Counter()
        for event in seen.events() or ():
            spent[event.name[:70]] += event.device_time  # pyright: ignore[reportAttributeAccessIssue]
            count[event.name[:70]] += 1
        print(f"{way}: {sum(spent.values()):.0f} us in {sum(count.values())} kernels")
        for name, time in spent.most_common(12):
            print(f"  {time:7.1f} us  {count[name]:3d} x  {name}", flush=True)


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--rounds", type=int, default=9, help="rounds of timing (default: 9)")
    parser.add_argument("--tune", action="store_true", help="compare ways to cut the kernels")
    parser.add_argument("--kernels", action="store_true", help="show what each kernel takes")
    parser.add_argument("--least-tokens", type=int, help="take the kernels from so many tokens on")
    args = parser.parse_args()
    if args.least_tokens is not None:
        narrow_block.LEAST_TOKENS = dict.fromkeys(narrow_block.LEAST_TOKENS, args.least_tokens)
    if not torch.cuda.is_available():
        sys.exit("bench/narrow_block.py needs a CUDA GPU: the kernels run nowhere else")
    torch.manual_seed(0)
    if not (narrow_block.HAS_TRITON and narrow_block.is_measured(DEVICE)):
        sys.exit("this GPU keeps the layers one by one, so there is nothing to time")
    for shape in SHAPES:
        print(f"{shape} off float64: {prove(shape)}", flush=True)
    if args.tune:
        for shape in TUNED:
            tune(shape, args.rounds)
    if args.kernels:
        show_kernels(256)
    parts = ["tokens", "width", "attention", "neurons"]
    for part in ("norm and qkv", "after attention"):
        parts += [f"{part}: compiled, us", "ours, us", "compiled / ours"]
    print(f"| {' | '.join(parts)} |\n|" + " ---: |" * len(parts))
    for shape in SHAPES:
        print(compare_parts(shape, args.rounds), flush=True)
    heads = ["network", "batch", "layer by layer, ms", "ours, ms", "layer by layer / ours"]
    heads += ["dense / this, layer by layer", "dense / this, ours"]
    lines = [f"| {' | '.join(heads)} |", "|---|" + " ---: |" * (len(heads) - 1)]
    for batch in (256, 1024):
        rows = compare(batch, args.rounds)
        print("\n".join(rows), flush=True)
        lines += rows
    for word, fact in surroundings(DEVICE).items():
        print(f"- {word}: {fact}")
    print("\n" + "\n".join(lines), flush=True)


if __name__ == "__main__":
    main()
