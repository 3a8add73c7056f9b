"""Does a CPU train faster with products in bf16? A training step of ours in fp32 and in bf16, in turns, model by model.

    OMP_NUM_THREADS=1 python bench/cpu_bf16.py            # a minute or two, as in docs/benchmarks.md
    python bench/cpu_bf16.py --quick --rounds 2           # seconds: does the script work?

Weights, gradients and AdamW are fp32 in both. The clock counts this process's processor time.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch

from report import report
from vitscope.core.device import cpu_has_bf16
from vitscope.infer.benchmark.surroundings import surroundings
from vitscope.infer.benchmark.timing import Clock, interleaved, paired_ratio, summary
from vitscope.infer.benchmark.work import make_batch, prepare_device, training_step, warm_up
from vitscope.models.build import build_model
from vitscope.models.config import pair
from vitscope.recipes import find_recipe

CPU = torch.device("cpu")
#           recipe,               pictures at once
CASES = (
    ("digits_vit", 64),
    ("cifar10_guide_quick", 64),
    ("mnist_vit", 64),
    ("cifar10_vit_tiny", 32),
    ("cifar10_guide_small", 32),
    ("cifar10_vit_small", 8),
    ("imagenette_vit_small", 4),
    ("mnist_cnn", 128),
    ("cifar10_resnet", 64),
    ("mnist_lstm", 128),
)


def timed(recipe: str, batch: int, *, rounds: int, least_seconds: float) -> dict[str, Any]:
    config = find_recipe(recipe)().model.bare
    shape = (batch, pair(config.img_size), config.in_chans, config.num_classes)
    calls = {
        dtype: training_step(build_model(config), *make_batch(*shape, CPU), "eager", dtype=dtype)
        for dtype in (torch.float32, torch.bfloat16)
    }
    for call in calls.values():
        warm_up(call, CPU)
    named = {str(dtype): call for dtype, call in calls.items()}
    seconds = interleaved(named, Clock(CPU, cpu_seconds=True), rounds=rounds, least_seconds=least_seconds)
    fp32, bf16 = (seconds[str(dtype)] for dtype in calls)
    return {
        "recipe": recipe,
        "width": getattr(config, "embed_dim", None),
        "batch": batch,
        "images_per_s": [batch / summary(times).median for times in (fp32, bf16)],
        "speed_up": paired_ratio(fp32, bf16),
    }


def line(row: dict[str, Any]) -> str:
    fp32, bf16 = (f"{rate:,.0f}" if rate >= 100 else f"{rate:.1f}" for rate in row["images_per_s"])
    ratio = row["speed_up"]
    cells = [f"`{row['recipe']}`", str(row["width"] or "-"), str(row["batch"]), fp32, bf16]
    return f"| {' | '.join([*cells, f'{ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f})'])} |"


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--device", choices=["cpu"], default="cpu", help="this is a question about CPUs")
    parser.add_argument("--rounds", type=int, default=7, help="rounds of timing (default: 7)")
    parser.add_argument("--quick", action="store_true", help="small batches, next to no time: does the script work?")
    parser.add_argument("--json", type=Path, help="write facts and rows here too")
    args = parser.parse_args()
    prepare_device(CPU)
    rows = []
    for recipe, batch in CASES[:2] if args.quick else CASES:
        rows.append(
            timed(recipe, 2 if args.quick else batch, rounds=args.rounds, least_seconds=0.01 if args.quick else 0.5)
        )
        print(line(rows[-1]), flush=True)
    heads = ["recipe's network", "width", "batch", "fp32, images/s", "bf16, images/s", "bf16 / fp32"]
    text = "\n".join([f"| {' | '.join(heads)} |", "|---|" + "---:|" * (len(heads) - 1), *map(line, rows)])
    told = [{**row, "speed_up": vars(row["speed_up"])} for row in rows]
    facts = {**surroundings(CPU), "bf16 of its own": {True: "yes", False: "no", None: "unknown"}[cpu_has_bf16()]}
    report(facts, told, text, args.json)


if __name__ == "__main__":
    main()
