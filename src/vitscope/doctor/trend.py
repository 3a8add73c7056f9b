"""Trends of short noisy series, each with its error."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence


def smoothed(values: Sequence[float]) -> list[float]:
    """Running medians of three, of five where the series is long enough for it; the ends see fewer."""
    reach = 2 if len(values) >= 15 else 1
    return [statistics.median(values[max(0, at - reach) : at + reach + 1]) for at in range(len(values))]


def noise_of(values: Sequence[float]) -> float:
    """The standard deviation of one value about a smooth curve: from second differences, which no trend has, by their
    median, which no single jump moves."""
    bends = [abs(a - 2 * b + c) for a, b, c in zip(values, values[1:], values[2:], strict=False)]
    return statistics.median(bends) / (0.6745 * math.sqrt(6)) if bends else 0.0


def slope_of(x: Sequence[float], y: Sequence[float], noise: float) -> tuple[float, float]:
    """Least squares and its standard error, by the larger of the residuals' spread and the noise known already."""
    if len(x) < 3:
        return 0.0, math.inf
    mean_x, mean_y = statistics.fmean(x), statistics.fmean(y)
    spread = sum((one - mean_x) ** 2 for one in x)
    slope = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / spread
    left = [b - mean_y - slope * (a - mean_x) for a, b in zip(x, y, strict=True)]
    residual = math.sqrt(sum(one**2 for one in left) / (len(x) - 2))
    return slope, max(residual, noise) / math.sqrt(spread)


def change(values: Sequence[float], at: int, tail: int, noise: float) -> tuple[float, float]:
    """The mean of the last `tail` values less that around `at`, and its error."""
    around = values[max(0, at - tail // 2) : at + tail // 2 + 1]
    last = values[-tail:]
    error = noise * math.sqrt(1 / len(around) + 1 / len(last))
    return statistics.fmean(last) - statistics.fmean(around), error
