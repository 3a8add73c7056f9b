"""Fair timing: every competitor is timed in every round, in rotating order, so that drift hits all alike."""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch

Call = Callable[[], object]
T = TypeVar("T")


@dataclass(frozen=True)
class Clock:
    """Seconds per call on one device.

    `wait_each_call` gives latency: the next call starts only when the last one has its answer. Without it
    calls follow each other as fast as the device takes them, which is throughput.
    `cpu_seconds` counts the time this process had the processor instead of the time that passed: on a CPU shared
    with others it is far steadier. It needs a single thread, since waiting threads burn time too.
    """

    device: torch.device
    wait_each_call: bool = False
    cpu_seconds: bool = False

    def seconds_per_call(self, call: Call, repeats: int) -> float:
        with _no_garbage_collection():
            if self.device.type == "cuda" and not self.wait_each_call:
                return self._between_events(call, repeats)
            now = time.process_time if self.cpu_seconds else time.perf_counter
            self.wait()
            start = now()
            for _ in range(repeats):
                call()
                if self.wait_each_call:
                    self.wait()
            self.wait()
            return (now() - start) / repeats

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def _between_events(self, call: Call, repeats: int) -> float:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        self.wait()
        start.record()
        for _ in range(repeats):
            call()
        end.record()
        self.wait()
        return start.elapsed_time(end) / 1e3 / repeats


def as_cuda_graph(work: Callable[[], T]) -> tuple[torch.cuda.CUDAGraph, T]:
    """`work` as one CUDA graph, and where its replays leave their result."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = work()
    return graph, result


def interleaved(calls: dict[str, Call], clock: Clock, *, rounds: int, least_seconds: float) -> dict[str, list[float]]:
    """Seconds per call of each competitor, one number a round. The calls must be warm.

    All repeat equally often inside a timing: so often that the fastest one's timing lasts `least_seconds`.
    """
    fastest = min(clock.seconds_per_call(call, 1) for call in calls.values())
    repeats = max(1, math.ceil(least_seconds / fastest))
    names = list(calls)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for i in range(rounds):
        cycle, first = divmod(i, len(names))
        order = names[first:] + names[:first]
        for name in order if cycle % 2 == 0 else reversed(order):  # so that nobody always follows the same one
            seconds[name].append(clock.seconds_per_call(calls[name], repeats))
    return seconds


@dataclass(frozen=True)
class Summary:
    """Median and quartiles of a number measured once a round."""

    median: float
    low: float
    high: float

    @property
    def spread_percent(self) -> float:
        """Distance between the quartiles, as a share of the median."""
        return 100 * (self.high - self.low) / self.median


def summary(values: list[float]) -> Summary:
    if len(values) == 1:
        return Summary(values[0], values[0], values[0])
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return Summary(median, low, high)


def paired_ratio(over: list[float], under: list[float]) -> Summary:
    """Of over / under, divided round by round, so that a slow moment of the machine cancels out."""
    return summary([a / b for a, b in zip(over, under, strict=True)])


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """A pause of the collector would be charged to whoever happens to run."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
