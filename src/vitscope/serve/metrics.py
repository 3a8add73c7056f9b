"""What a server did, in Prometheus' text format: counts, how long requests took, how large batches were."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Sequence

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
PICTURES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Counter:
    """Only ever goes up; one number for each set of label values."""

    def __init__(self, name: str, about: str, labels: Sequence[str] = ()) -> None:
        self.name, self.about, self.labels = name, about, labels
        self.values: dict[tuple[str, ...], float] = {} if labels else {(): 0}

    def add(self, *labels: str, count: float = 1) -> None:
        self.values[labels] = self.values.get(labels, 0) + count

    def lines(self) -> list[str]:
        told = [f"{self.name}{_braced(self.labels, key)} {_exact(value)}" for key, value in sorted(self.values.items())]
        return _with_head(self.name, self.about, "counter", told)


class Histogram:
    """How often something was up to each bound."""

    def __init__(self, name: str, about: str, bounds: Sequence[float], labels: Sequence[str] = ()) -> None:
        self.name, self.about, self.bounds, self.labels = name, about, bounds, labels
        self._counts: dict[tuple[str, ...], list[int]] = defaultdict(lambda: [0] * (len(bounds) + 1))
        self._sums: dict[tuple[str, ...], float] = defaultdict(float)

    def see(self, value: float, *labels: str) -> None:
        self._counts[labels][bisect_left(self.bounds, value)] += 1
        self._sums[labels] += value

    def lines(self) -> list[str]:
        told = []
        for key, counts in sorted(self._counts.items()):
            total = 0
            for bound, count in zip((*map(str, self.bounds), "+Inf"), counts, strict=True):
                total += count
                told.append(f"{self.name}_bucket{_braced((*self.labels, 'le'), (*key, bound))} {total}")
            told.append(f"{self.name}_sum{_braced(self.labels, key)} {self._sums[key]:.6f}")
            told.append(f"{self.name}_count{_braced(self.labels, key)} {total}")
        return _with_head(self.name, self.about, "histogram", told)


class Metrics:
    """All that is counted."""

    def __init__(self) -> None:
        self.requests = Counter("vitscope_requests_total", "Requests answered.", ("path", "status"))
        self.seconds = Histogram("vitscope_request_seconds", "From request to answer.", SECONDS, ("path",))
        self.pictures = Counter("vitscope_pictures_total", "Pictures asked about.", ("path", "outcome"))
        self.bytes = Counter("vitscope_upload_bytes_total", "Bytes received in requests that were read whole.")
        self.batches = Histogram("vitscope_batch_pictures", "Pictures in a batch.", PICTURES, ("path",))
        self.model_seconds = Counter("vitscope_model_seconds_total", "Time the model was busy.", ("path",))
        self.left = Counter("vitscope_clients_left_total", "Clients that left before their answer.")
        self._gauges: list[tuple[str, str, Callable[[], float]]] = []

    def gauge(self, name: str, about: str, value: Callable[[], float]) -> None:
        """Something that goes up and down, read when it is asked for."""
        self._gauges.append((name, about, value))

    def text(self) -> str:
        lines: list[str] = []
        for counted in vars(self).values():
            if isinstance(counted, Counter | Histogram):
                lines += counted.lines()
        for name, about, value in self._gauges:
            lines += _with_head(name, about, "gauge", [f"{name} {_exact(value())}"])
        return "\n".join(lines) + "\n"


def _with_head(name: str, about: str, kind: str, lines: list[str]) -> list[str]:
    return [f"# HELP {name} {about}", f"# TYPE {name} {kind}", *lines]


def _braced(names: Sequence[str], values: Sequence[str]) -> str:
    if not names:
        return ""
    told = (f'{name}="{_escaped(value)}"' for name, value in zip(names, values, strict=True))
    return "{" + ",".join(told) + "}"


def _exact(value: float) -> str:
    """All its digits: a count that is rounded goes up in steps."""
    return str(int(value)) if value == int(value) else repr(float(value))


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
