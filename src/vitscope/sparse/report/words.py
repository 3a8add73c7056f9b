"""How networks are called and numbers are written in the report."""

from __future__ import annotations

from vitscope.sparse.report.seeds import Spread
from vitscope.sparse.rows import DENSE

NOTHING = "-"
MASKED = "masked"
MASKED_MEANS = "masked: no smaller, no faster"

# `random` and `oneshot` take units or single weights, as the algorithm does; the names fit both.
_SHORT = {
    "control:dense": "dense, retrained",
    "control:random": "random choice",
    "control:reinit": "new weights",
    "control:oneshot": "one-shot",
}
_PHRASES = {
    DENSE: "the dense network it came from",
    "control:dense": "the dense network, retrained",
    "control:random": "a random choice of as many",
    "control:reinit": "the same network from new weights",
    "control:oneshot": "one-shot magnitude, then trained",
}


def short_name(network: str) -> str:
    return _SHORT.get(network, network.removeprefix("control:"))


def phrase(network: str) -> str:
    """As it stands in a sentence, after 'against'."""
    return _PHRASES.get(network, network.removeprefix("control:"))


def percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f}"


def counted(count: float) -> str:
    """2693000 -> '2.69 M'."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(count) >= size:
            return f"{count / size:.2f} {unit}"
    return f"{count:.0f}"


def milliseconds(value: float) -> str:
    """Three digits, as timing has no more."""
    return f"{value:.0f}" if value >= 99.95 else f"{value:#.3g}"


def times(ratio: float) -> str:
    return f"{ratio:.2f}x"


def lasting(seconds: float) -> str:
    """3725 -> '1 h 02 min'."""
    if seconds < 59.95:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{seconds / 60:.1f} min" if minutes < 10 else f"{minutes} min" if minutes < 60 else _hours(minutes)


def _hours(minutes: int) -> str:
    return f"{minutes // 60} h {minutes % 60:02d} min"


def small(value: float) -> str:
    return "0" if value == 0 else f"{value:.2g}"


def ranged(found: Spread, middle: str, low: str, high: str) -> str:
    """The mean, and in brackets the lowest and highest seed; a range that rounds to nothing is left out."""
    return middle if found.count == 1 or low == high else f"{middle} ({low} to {high})"
