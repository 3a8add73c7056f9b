"""Whether a metric is good when it is large."""

from __future__ import annotations


def is_larger_better(metric: str, mode: str) -> bool:
    """`mode` is min, max, or auto: small is good for a loss, large otherwise."""
    return mode == "max" if mode != "auto" else "loss" not in metric
