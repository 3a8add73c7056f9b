"""`vitscope bench`: a model's speed, and beside other libraries'."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from vitscope.cli.console import console, in_bytes, print_table
from vitscope.core.dtypes import TORCH_DTYPES, type_name, usual_dtype
from vitscope.infer.benchmark.contest import Result, Row, release, run_row
from vitscope.infer.benchmark.peers import OURS, build, prove_equal, without_drops
from vitscope.infer.benchmark.timing import Clock, paired_ratio, percentile, summary
from vitscope.infer.benchmark.work import make_batch
from vitscope.infer.launched import Launch
from vitscope.models.config import pair
from vitscope.models.model import VisionModel

LEAST_SECONDS = 0.3


def contest_report(
    command: Any, model: VisionModel, device: torch.device, *, say: Callable[[str], None]
) -> dict[str, Any]:
    """Plain data: whether the work is equal, and a line for each work, launch, batch and competitor."""
    bare = without_drops(model.config)
    state = model.state_dict()
    dtype = usual_dtype(device) if command.dtype is None else TORCH_DTYPES[command.dtype]
    names = [OURS, *command.peers]
    proof = prove_equal(bare, names) if command.peers else None
    if proof is not None:
        say(proof.text())
    rows = []
    for row in _rows(command, device):
        say(f"{row.work}, {row.launch}, batch {row.batch}")
        images, labels = make_batch(row.batch, pair(bare.img_size), bare.in_chans, model.num_classes, device)
        result = run_row(
            row,
            {name: partial(build, name, bare, state) for name in names},
            images,
            labels,
            clock=Clock(device),
            dtype=dtype,
            rounds=command.rounds,
            least_seconds=LEAST_SECONDS,
            problems={} if proof is None else proof.problems,
            singles=row.work == "inference",
        )
        rows += [_line(result, name) for name in names]
        release(device)
    told = {"dtype": type_name(dtype), "rounds": command.rounds, "rows": rows}
    return told if proof is None else {**told, "equal_work": vars(proof)}


def print_contest(command: Any, facts: dict[str, Any], told: dict[str, Any]) -> None:
    out = console()
    out.print(f"{command.title} in {told['dtype']} on {facts['hardware']}\n{facts['versions']}\n", markup=False)
    columns = ["work", "launch", "batch", "who", "images/s", "p50 ms", "p95 ms", "memory", "ours is"]
    rows = []
    for row in told["rows"]:
        cells = [row["work"], row["launch"], str(row["batch"]), row["who"]]
        if "problem" in row:
            rows.append([*cells, "-", "", "", "", ""])
            continue
        rate = f"{row['images_per_s']:,.{0 if row['images_per_s'] >= 100 else 1}f} ({row['spread_percent']:.0f} %)"
        times = [f"{row[key]:.2f}" if key in row else "" for key in ("latency_ms_p50", "latency_ms_p95")]
        memory = in_bytes(row["memory_bytes"]) if "memory_bytes" in row else ""
        ratio = ""
        if "ours_over_theirs" in row:
            low, high = row["quartiles"]
            ratio = f"{row['ours_over_theirs']:.2f}x as fast ({low:.2f} to {high:.2f})"
        rows.append([*cells, rate, *times, memory, ratio])
    if all(not row[-1] for row in rows):
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    print_table(columns, rows, numbers=("batch", "images/s", "p50 ms", "p95 ms", "memory"))
    out.print()
    for who, why in dict.fromkeys((row["who"], row["problem"]) for row in told["rows"] if "problem" in row):
        out.print(f"{who}: {why}", markup=False)
    out.print(
        f"Medians of {told['rounds']} rounds in turns; in brackets how far the quartiles are apart. Memory: "
        "at the peak on a GPU, on a CPU what a call takes beyond the model.",
        markup=False,
    )


def _rows(command: Any, device: torch.device) -> list[Row]:
    launches: list[Launch] = ["eager"]
    if command.compile:
        launches.append("compiled")
    if command.compile and device.type == "cuda":
        launches.append("compiled_graph")
    rows = [Row(command.name, "inference", launch, batch) for launch in launches for batch in command.batch]
    if command.train:
        rows += [Row(row.model, "train", row.launch, row.batch) for row in rows if row.launch != "compiled_graph"]
    return rows


def _line(result: Result, name: str) -> dict[str, Any]:
    row = result.row
    told: dict[str, Any] = {"work": row.work, "launch": row.launch, "batch": row.batch, "who": name}
    if name not in result.seconds:
        return {**told, "problem": result.problems.get(name) or result.problems.get("row") or "not timed"}
    rate = summary([row.batch / seconds for seconds in result.seconds[name]])
    told |= {"images_per_s": rate.median, "spread_percent": rate.spread_percent}
    if name in result.single_seconds:
        singles = result.single_seconds[name]
        told |= {f"latency_ms_p{share:.0f}": 1e3 * percentile(singles, share / 100) for share in (50, 95)}
    if name in result.memory_bytes:
        told["memory_bytes"] = result.memory_bytes[name]
    if name != OURS and OURS in result.seconds:
        ratio = paired_ratio(result.seconds[name], result.seconds[OURS])
        told |= {"ours_over_theirs": ratio.median, "quartiles": [ratio.low, ratio.high]}
    return told
