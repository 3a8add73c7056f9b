"""Fair timing: every competitor is timed in every round, in rotating order, so that drift hits all alike."""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch

Call = Callable[[], object]


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
        with torch.cuda.device(self.device):  # whose stream is waited for
            start.record()
            for _ in range(repeats):
                call()
            end.record()
        self.wait()
        return start.elapsed_time(end) / 1e3 / repeats


def interleaved(calls: dict[str, Call], clock: Clock, *, rounds: int, least_seconds: float) -> dict[str, list[float]]:
    """Seconds per call of each competitor, one number a round. The calls must be warm.

    All repeat equally often inside a timing: so often that the fastest one's timing lasts `least_seconds`.
    """
    fastest = min(clock.seconds_per_call(call, 1) for call in calls.values())
    repeats = max(1, math.ceil(least_seconds / fastest))
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for order in _orders(list(calls), rounds):
        for name in order:
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


def single_calls(calls: dict[str, Call], clock: Clock, *, rounds: int, least_seconds: float) -> dict[str, list[float]]:
    """Seconds of single calls, each waited for before the next, in turns. The calls must be warm.

    A round holds so many of them that the fastest one's last `least_seconds`.
    """
    waiting = replace(clock, wait_each_call=True)
    fastest = min(waiting.seconds_per_call(call, 1) for call in calls.values())
    repeats = max(1, math.ceil(least_seconds / fastest))
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for order in _orders(list(calls), rounds):
        for name in order:
            seconds[name] += [waiting.seconds_per_call(calls[name], 1) for _ in range(repeats)]
    return seconds


def _orders(names: list[str], rounds: int) -> Iterator[list[str]]:
    """Who comes after whom, round by round: so that nobody always follows the same one.

    >>> list(_orders(["a", "b"], 4))
    [['a', 'b'], ['b', 'a'], ['b', 'a'], ['a', 'b']]
    """
    for i in range(rounds):
        cycle, first = divmod(i, len(names))
        order = names[first:] + names[:first]
        yield order if cycle % 2 == 0 else order[::-1]


def percentile(values: list[float], share: float) -> float:
    """The least value that at least `share` of all do not exceed.

    >>> percentile([4.0, 1.0, 3.0, 2.0], 0.5), percentile([4.0, 1.0, 3.0, 2.0], 0.95)
    (2.0, 4.0)
    """
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
