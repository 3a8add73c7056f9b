"""Trends of short noisy series of losses, each with its error."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from vitscope.doctor.thresholds.curves import CURVE_NEAR_ZERO

Numbers = np.ndarray


def scaled(losses: Sequence[float], start: float) -> Numbers:
    """Logs of losses, so that noise, which is a share of the loss, is the same at every height. A share of the `start`
    is added first: what happens near zero is worth nothing."""
    return np.log(np.maximum(np.asarray(losses, float), 0.0) + CURVE_NEAR_ZERO * start)


def smoothed(values: Numbers) -> Numbers:
    """Running medians of three, of five where the series is long enough for it; the ends see fewer."""
    reach = 2 if len(values) >= 15 else 1
    return np.asarray([np.median(values[max(0, at - reach) : at + reach + 1]) for at in range(len(values))])


def usual_noise(values: Numbers) -> float:
    """The standard deviation of one value about a smooth curve: from second differences, which no trend has, by their
    median, which no single jump moves."""
    bends = np.abs(np.diff(values, 2))
    return float(np.median(bends)) / (0.6745 * math.sqrt(6)) if len(bends) else 0.0


def noise_of(values: Numbers) -> float:
    """The same; of few values the larger of it and what their mean says, as the median of few is often far too
    small."""
    bends = np.abs(np.diff(values, 2))
    if len(bends) == 0 or len(bends) >= 30:
        return usual_noise(values)
    return max(usual_noise(values), 1.2533 * float(bends.mean()) / math.sqrt(6))


def lowest(values: Numbers) -> int:
    """Where a series turns from falling to rising: the place at which a fall and a rise fit it best. No single low
    value decides."""
    falls, rises = _errors_of_falling(values), _errors_of_falling(values[::-1])[::-1]
    errors = falls + np.append(rises[1:], 0.0)
    return int(np.flatnonzero(errors <= errors.min() + 1e-12)[-1])


def bend(values: Numbers, low: int) -> int:
    """Where a series that rises at the end began to: it may have been flat for long before. The place at which a level
    and a line from there fit best what came after the fall, of which `low` is the deepest place."""
    floor, noise = float(np.mean(values[max(0, low - 1) : low + 2])), usual_noise(values)
    calm = smoothed(values)
    first = int(np.flatnonzero(calm <= max(floor + noise, calm.min()))[0])
    part = values[first:]
    errors = []
    for at in range(max(1, len(part) - 2)):
        line = np.maximum(np.arange(len(part)) - at, 0.0)
        off, above = part - part.mean(), line - line.mean()
        slope = float(above @ off) / float(above @ above)
        errors.append(float(off @ off) - slope**2 * float(above @ above) if slope > 0 else math.inf)
    return first + int(np.argmin(errors))


def change(values: Numbers, at: int, tail: int, noise: float) -> tuple[float, float]:
    """The mean of the last `tail` values less that of about as many around `at`, and its error."""
    around, last = values[max(0, at - tail // 2) : at + tail // 2 + 1], values[-tail:]
    return float(last.mean() - around.mean()), noise * math.sqrt(1 / len(around) + 1 / len(last))


def slope_of(x: Sequence[float], y: Numbers, noise: float) -> tuple[float, float]:
    """Least squares and its standard error, by the larger of the residuals' spread and the noise known already."""
    if len(x) < 3:
        return 0.0, math.inf
    places = np.asarray(x, float) - np.mean(x)
    spread = float((places**2).sum())
    slope = float(places @ (y - y.mean())) / spread
    left = y - y.mean() - slope * places
    residual = math.sqrt(float(left @ left) / (len(x) - 2))
    return slope, max(residual, noise) / math.sqrt(spread)


def _errors_of_falling(values: Numbers) -> Numbers:
    """Of every beginning of the series, the squared error of the best curve that never rises: neighbours that rise are
    averaged until none does."""
    blocks: list[tuple[float, int]] = []  # (sum, count)
    errors, error = np.empty(len(values)), 0.0
    for place, value in enumerate(values.tolist()):
        total, count = value, 1
        while blocks and blocks[-1][0] / blocks[-1][1] < total / count:
            before, many = blocks.pop()
            error += (before / many - total / count) ** 2 * many * count / (many + count)
            total, count = total + before, count + many
        blocks.append((total, count))
        errors[place] = error
    return errors
