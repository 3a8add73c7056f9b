"""One line of a comparison: the same work, launched the same way, for every competitor; taking turns."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from vitscope.core.environment import why_no_compiler
from vitscope.infer.benchmark.memory import peak_memory_bytes
from vitscope.infer.benchmark.peers import OURS, PEERS, short
from vitscope.infer.benchmark.timing import Call, Clock, interleaved, paired_ratio, single_calls, summary
from vitscope.infer.benchmark.work import forward_pass, training_step, warm_up
from vitscope.infer.launched import Launch

Work = Literal["train", "inference", "latency"]
Build = Callable[[], nn.Module]


@dataclass(frozen=True)
class Row:
    """What is timed."""

    model: str
    work: Work
    launch: Launch
    batch: int

    @property
    def name(self) -> str:
        return f"{self.model}/{self.work}/{self.launch}"


@dataclass
class Result:
    """What a row gave. `problems` says why a competitor, or the whole row (under "row"), has no number."""

    row: Row
    seconds: dict[str, list[float]] = field(default_factory=dict)
    """Of a call: for latency each single one, which was waited for; else one number a round, of calls in a row."""
    single_seconds: dict[str, list[float]] = field(default_factory=dict)
    """The same for single calls, where they were asked for too."""
    memory_bytes: dict[str, int] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        facts: dict[str, Any] = {"name": self.row.name, **dataclasses.asdict(self)}
        for peer in PEERS:
            if OURS in self.seconds and peer in self.seconds:
                ratio = paired_ratio(self.seconds[peer], self.seconds[OURS])
                facts[f"ours_over_{peer}"] = dataclasses.asdict(ratio)
        facts["median_seconds"] = {name: summary(times).median for name, times in self.seconds.items()}
        return facts


def run_row(
    row: Row,
    competitors: Mapping[str, Build],
    images: Tensor,
    labels: Tensor,
    *,
    clock: Clock,
    dtype: torch.dtype | None = None,
    rounds: int,
    least_seconds: float,
    problems: Mapping[str, str] | None = None,
    singles: bool = False,
) -> Result:
    """Build and warm every competitor, then time them against each other. What fails is told, not raised; those in
    `problems` are not even tried. With `singles` single calls are timed too."""
    result = Result(row, problems=dict(problems or {}))
    missing = why_no_compiler(images.device.type) if row.launch.startswith("compiled") else None
    if missing is not None:
        result.problems["row"] = missing
        return result
    calls: dict[str, Call] = {}
    for name, build in competitors.items():
        if name in result.problems:
            continue
        try:
            calls[name] = _ready(name, build, row, images, labels, dtype, result)
        except Exception as error:
            result.problems[name] = short(error)
    try:
        if calls and row.work == "latency":
            result.seconds = single_calls(calls, clock, rounds=rounds, least_seconds=least_seconds)
        elif calls:
            result.seconds = interleaved(calls, clock, rounds=rounds, least_seconds=least_seconds)
            if singles:
                result.single_seconds = single_calls(calls, clock, rounds=rounds, least_seconds=least_seconds)
    except Exception as error:
        result.problems["row"] = short(error)
    return result


def _ready(
    name: str, build: Build, row: Row, images: Tensor, labels: Tensor, dtype: torch.dtype | None, result: Result
) -> Call:
    """A warm call; its own peak memory, beyond what stood there before it, goes into `result`."""
    device = images.device
    before = torch.cuda.memory_allocated(device) if device.type == "cuda" else 0
    with device:
        model = build()
    if row.work == "train":
        call = training_step(model, images, labels, row.launch, dtype=dtype)
    else:
        call = forward_pass(model, images, row.launch, dtype=dtype)
    warm_up(call, device)
    if not row.launch.endswith("graph"):  # a graph's own pool is not part of that peak
        peak = peak_memory_bytes(call, device)
        if peak is not None:
            result.memory_bytes[name] = peak - before
    return call


def release(device: torch.device) -> None:
    """Let nothing of a row weigh on the next."""
    gc.collect()
    torch._dynamo.reset()
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
