"""Our ViT against timm's and transformers', in one run: training, inference and latency, eager and compiled.

    python bench/throughput.py                                  # everything the device can do
    python bench/throughput.py --rows 'vit_base*/train/*'       # some rows: model/work/launch
    python bench/throughput.py --quick --no-compile             # seconds: does the script work?
    OMP_NUM_THREADS=1 python bench/throughput.py --device cpu --cpu-seconds --rounds 15    # on a shared machine

Equal work is proven before anything is timed (`peers.prove_equal`). Each round times every competitor, in
rotating order; a ratio is the median over rounds of that round's ratio. The table comes last, ready for
docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

import torch

from table import row_line, table
from vitscope.infer.benchmark.contest import Result, Row, release, run_row
from vitscope.infer.benchmark.peers import OURS, TIMM, TRANSFORMERS, Proof, State, build, prove_equal
from vitscope.infer.benchmark.surroundings import surroundings
from vitscope.infer.benchmark.timing import Clock
from vitscope.infer.benchmark.work import make_batch, prepare_device
from vitscope.models.config import ViTConfig, pair
from vitscope.models.variants import model_config

# Images in a batch: on a GPU, on a CPU in training, on a CPU in inference. Small on a CPU, so that competitors
# take turns quickly: what disturbs a shared machine for seconds then hits all of them.
BATCHES = {
    "vit_base_patch16_224": (256, 2, 4),
    "vit_small_patch16_224": (512, 4, 8),
    "vit_small": (1024, 8, 16),
    "vit_tiny": (1024, 16, 32),
}
GRAPH_MODELS = ("vit_base_patch16_224", "vit_small_patch16_224")
COMPILED_TRANSFORMERS = "vit_base_patch16_224/train/compiled"
"""Compiling takes most of a run, so transformers' is compiled where it matters most, and nowhere else."""


def main() -> None:
    args = parse_arguments()
    started = time.monotonic()
    device = torch.device(args.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    prepare_device(device)
    names = [OURS, TIMM] + ([] if args.no_transformers else [TRANSFORMERS])
    rows = [row for row in all_rows(device, args.quick) if wished(row, args)]
    proofs: dict[str, Proof] = {}
    results: list[Result] = []
    state: State = {}

    for row in rows:
        if args.budget_seconds is not None and time.monotonic() - started > args.budget_seconds:
            break
        config = settings(row.model, args.quick)
        if row.model not in proofs:
            proofs[row.model] = prove_equal(config, names)
            print(f"{row.model}: {proofs[row.model].text()}", flush=True)
            state = build(OURS, config).state_dict()
        result = timed(row, config, state, names, proofs[row.model], device, args)
        results.append(result)
        release(device)
        print(f"[{time.monotonic() - started:5.0f} s] {row_line(result)}", flush=True)

    left_out = [row.name for row in rows[len(results) :]]
    report(results, proofs, left_out, device, args)


def timed(
    row: Row,
    config: ViTConfig,
    state: State,
    names: list[str],
    proof: Proof,
    device: torch.device,
    args: argparse.Namespace,
) -> Result:
    """One row, against those whose work is equal."""
    images, labels = make_batch(row.batch, pair(config.img_size), config.in_chans, config.num_classes, device)
    problems = dict(proof.problems)
    if TRANSFORMERS in names and row.launch != "eager" and row.name != COMPILED_TRANSFORMERS:
        problems[TRANSFORMERS] = "not timed"
    return run_row(
        row,
        {name: partial(build, name, config, state) for name in names},
        images,
        labels,
        clock=Clock(device, cpu_seconds=args.cpu_seconds),
        rounds=args.rounds,
        least_seconds=args.least_seconds,
        problems=problems,
    )


def all_rows(device: torch.device, quick: bool) -> list[Row]:
    """Every row this kind of device has, the most important model first."""
    rows = []
    for model, (gpu, cpu_train, cpu_inference) in BATCHES.items():
        train, inference = (gpu, gpu) if device.type == "cuda" else (cpu_train, cpu_inference)
        if quick:
            train, inference = 2, 2
        rows += [Row(model, "train", launch, train) for launch in ("eager", "compiled")]
        rows += [Row(model, "inference", launch, inference) for launch in ("eager", "compiled")]
        rows.append(Row(model, "latency", "eager", 1))
        if device.type == "cuda" and model in GRAPH_MODELS:
            rows.append(Row(model, "latency", "compiled_graph", 1))
    return rows


def wished(row: Row, args: argparse.Namespace) -> bool:
    if args.no_compile and row.launch != "eager":
        return False
    return any(fnmatchcase(row.name, pattern) for pattern in args.rows)


def settings(model: str, quick: bool) -> ViTConfig:
    config = model_config(model)
    if not isinstance(config, ViTConfig):
        raise TypeError(f"{model} is no plain ViT")
    return dataclasses.replace(config, embed_dim=32, depth=1, num_heads=2) if quick else config


def report(
    results: list[Result],
    proofs: dict[str, Proof],
    left_out: list[str],
    device: torch.device,
    args: argparse.Namespace,
) -> None:
    facts = surroundings(device)
    if args.json is not None:
        everything = {
            **facts,
            "rounds": args.rounds,
            "cpu_seconds": args.cpu_seconds,
            "quick": args.quick,
            "equal_work": {model: dataclasses.asdict(proof) for model, proof in proofs.items()},
            "rows": [result.as_json() for result in results],
            "left_out": left_out,
        }
        args.json.write_text(json.dumps(everything, indent=1) + "\n")
    print()
    for word, fact in facts.items():
        print(f"- {word}: {fact}")
    precision = "fp32 weights under bf16 autocast in training, bf16 weights in inference"
    print(f"- precision: {precision if device.type == 'cuda' else 'fp32'}; AdamW (fused); {args.rounds} rounds")
    print(f"- clock: {'CPU seconds of this process' if args.cpu_seconds else 'time that passed'}")
    if left_out:
        print(f"- left out, the time being spent: {', '.join(left_out)}")
    print(f"\n{table(results)}", flush=True)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", help="cpu or cuda (default: cuda where there is one)")
    parser.add_argument(
        "--rows", nargs="+", default=["*"], metavar="GLOB", help="only rows whose model/work/launch match"
    )
    parser.add_argument("--rounds", type=int, default=5, help="rounds of timing (default: 5)")
    parser.add_argument("--least-seconds", type=float, help="shortest single timing (default: 0.3; quick: 0.005)")
    parser.add_argument("--cpu-seconds", action="store_true", help="count this process's CPU time (shared machine)")
    parser.add_argument("--quick", action="store_true", help="toy sizes: shows that the script works, nothing else")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every single timing here")
    parser.add_argument("--no-transformers", action="store_true", help="only ours and timm")
    parser.add_argument("--no-compile", action="store_true", help="only eager rows")
    parser.add_argument("--budget-seconds", type=float, metavar="S", help="start no row after this many seconds")
    args = parser.parse_args()
    if args.rounds < 1:
        parser.error(f"--rounds: expected at least 1, received {args.rounds}")
    if args.cpu_seconds and (args.device != "cpu" or torch.get_num_threads() > 1):
        parser.error("--cpu-seconds: expected --device cpu and OMP_NUM_THREADS=1")
    if args.least_seconds is None:
        args.least_seconds = 0.005 if args.quick else 0.3
    return args


if __name__ == "__main__":
    main()
