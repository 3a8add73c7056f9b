"""A CUDA graph is recorded on the GPU that was named. Here a stand-in for torch.cuda notes what happens where; the real
thing is tested in tests/gpu."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from vitscope.core import cuda_graph
from vitscope.core.cuda_graph import WARM_UPS, record


class Machine:
    """Of two GPUs, the first is the current one."""

    def __init__(self) -> None:
        self.device, self.stream = 0, "default"
        self.seen: list[tuple[str, int, Any]] = []

    @contextmanager
    def on(self, device: torch.device) -> Iterator[None]:
        before, self.device = self.device, cuda_graph.index_of(device)
        yield
        self.device = before

    @contextmanager
    def using(self, stream: Any) -> Iterator[None]:
        before, self.stream = self.stream, stream
        yield
        self.stream = before

    @contextmanager
    def recording(self, graph: Any, *, pool: Any, stream: Any, capture_error_mode: str) -> Iterator[None]:
        assert capture_error_mode == "thread_local"
        self.seen.append(("recording", self.device, (stream, pool)))
        with self.using(stream):
            yield

    def work(self) -> str:
        self.seen.append(("work", self.device, self.stream))
        return "result"


class FakeStream:
    def __init__(self, index: int) -> None:
        self.index = index

    def wait_stream(self, other: Any) -> None:
        """Nothing runs here."""


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    made = Machine()
    cuda_graph._streams.cache_clear()
    for name, stand_in in {
        "device": made.on,
        "stream": made.using,
        "graph": made.recording,
        "current_device": lambda: made.device,
        "current_stream": lambda: FakeStream(made.device),
        "Stream": FakeStream,
        "CUDAGraph": object,
    }.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    yield made
    cuda_graph._streams.cache_clear()


@pytest.mark.parametrize(("named", "index"), [("cuda", 0), ("cuda:0", 0), ("cuda:1", 1)])
def test_all_of_it_happens_on_the_gpu_that_was_named(machine: Machine, named: str, index: int) -> None:
    _, result = record(machine.work, torch.device(named), pool=(3, 4))
    assert result == "result"
    works = [(device, stream.index) for what, device, stream in machine.seen if what == "work"]
    assert works == [(index, index)] * (WARM_UPS + 1)
    ((where, (stream, pool)),) = [(device, more) for what, device, more in machine.seen if what == "recording"]
    assert (where, stream.index, pool) == (index, index, (3, 4))
    assert machine.device == 0, "and the current one is what it was"


def test_a_gpu_keeps_its_streams(machine: Machine) -> None:
    for name in ("cuda:0", "cuda:1", "cuda:0"):
        record(machine.work, torch.device(name))
    streams = {id(stream) for what, _, stream in machine.seen if what == "work"}
    assert len(streams) == 4, "two each, whatever is recorded"
