"""The six named models on this machine: images/s and memory in training and inference.

    python bench/six_models.py                           # a modest batch: what memory does training take?
    python bench/six_models.py --compile --large-batch   # the GPU filled: how fast is it?

The numbers behind `vitscope models --advise`. Launchls for small pictures get 128 images a batch (large: 1024), those
for photographs 64 (large: 256); on a CPU every model gets 4, since a larger batch only takes longer there.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch

from report import report
from throughput import settings
from vitscope.infer.benchmark.contest import release
from vitscope.infer.benchmark.memory import peak_memory_bytes
from vitscope.infer.benchmark.peers import OURS, build, short
from vitscope.infer.benchmark.surroundings import surroundings
from vitscope.infer.benchmark.timing import Clock, interleaved, summary
from vitscope.infer.benchmark.work import Launch, forward_pass, make_batch, prepare_device, training_step, warm_up
from vitscope.models.config import pair

# modest, large
BATCHES = {
    "vit_tiny": (128, 1024),
    "vit_small": (128, 1024),
    "vit_base": (128, 1024),
    "vit_small_imagenet": (64, 256),
    "vit_base_imagenet": (64, 256),
    "vit_large_imagenet": (64, 256),
}
WORKS = ("train", "inference")


def main() -> None:
    args = parse_arguments()
    device = torch.device(args.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    prepare_device(device)
    rows = []
    for name, (modest, large) in BATCHES.items():
        batch = large if args.large_batch else modest
        if args.batch is not None or device.type == "cpu":
            batch = args.batch or 4
        row = measure_model(name, batch, device, args)
        rows.append(row)
        print(row, flush=True)
    facts = surroundings(device)
    report(facts, rows, table(rows), args.json)


def measure_model(name: str, batch: int, device: torch.device, args: argparse.Namespace) -> dict[str, Any]:
    """images/s and peak GiB (weights, gradients, optimiser, activations, batch) of both works."""
    row: dict[str, Any] = {"model": name, "batch": batch, "launch": "compiled" if args.compile else "eager"}
    for work in WORKS:
        try:
            seconds, peak_gib = measure(name, work, row["launch"], batch, device, args)
        except Exception as error:
            row[f"{work}_problem"] = short(error)
        else:
            row[f"{work}_images_per_s"] = round(batch / summary(seconds).median, 1)
            row[f"{work}_spread_percent"] = round(summary(seconds).spread_percent, 1)
            row[f"{work}_peak_gib"] = None if peak_gib is None else round(peak_gib, 2)
        release(device)
    return row


def measure(
    name: str, work: str, launch: Launch, batch: int, device: torch.device, args: argparse.Namespace
) -> tuple[list[float], float | None]:
    config = settings(name, args.quick)
    images, labels = make_batch(batch, pair(config.img_size), config.in_chans, config.num_classes, device)
    with device:
        model = build(OURS, config)
    train = work == "train"
    call = training_step(model, images, labels, launch) if train else forward_pass(model, images, launch)
    warm_up(call, device)
    peak_bytes = peak_memory_bytes(call, device) if device.type == "cuda" else None
    least = 0.005 if args.quick else 0.3
    times = interleaved({OURS: call}, Clock(device), rounds=args.rounds, least_seconds=least)
    return times[OURS], None if peak_bytes is None else peak_bytes / 2**30


def table(rows: list[dict[str, Any]]) -> str:
    heads = ["model", "launch", "batch"]
    for work in WORKS:
        heads += [f"{work}, images/s", f"{work}, peak GiB"]
    lines = [heads, ["---"] * 2 + ["---:"] * (len(heads) - 2)]
    for row in rows:
        cells = [row["model"], row["launch"], str(row["batch"])]
        for work in WORKS:
            rate, peak = row.get(f"{work}_images_per_s"), row.get(f"{work}_peak_gib")
            if rate is None:
                cells.append(row[f"{work}_problem"])
            else:
                cells.append(f"{rate:,} ({row[f'{work}_spread_percent']} %)")
            cells.append("-" if peak is None else f"{peak:.2f}")
        lines.append(cells)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def parse_arguments() -> argparse.Namespace:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--device", help="cpu or cuda (default: cuda where there is one)")
    parser.add_argument("--batch", type=int, help="images a batch, the same for all models")
    parser.add_argument("--large-batch", action="store_true", help="enough images to fill a large GPU")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of timing (default: 5)")
    parser.add_argument("--compile", action="store_true", help="through torch.compile")
    parser.add_argument("--quick", action="store_true", help="toy sizes: shows that the script works")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers here")
    return parser.parse_args()


if __name__ == "__main__":
    main()
