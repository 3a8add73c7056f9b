"""True oscillation: swings of the training loss with a period of their own, which noise has not."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from vitscope.doctor.thresholds.curves import (
    SWING_BY_CHANCE,
    SWING_CYCLES,
    SWING_FEWEST,
    SWING_FEWEST_OF_PART,
    SWING_LONGEST,
    SWING_ONSET,
    SWING_SIZE,
    SWING_TIMES,
)
from vitscope.doctor.trend import Numbers, noise_of, usual_noise

FINER = 4
"""Steps between two whole numbers of cycles."""


class Swing(NamedTuple):
    began: int
    size: float
    """Half of the way from top to bottom, as a share of the loss."""


def find_swing(values: Numbers, error: float | None = None) -> Swing | None:
    """Of scaled training losses. Their noise may be as large as it likes, if it is noise: what counts is a period, in
    the whole or the later part. `error`, where known, is what an epoch's mean may be off by chance: swings far beyond
    it need no period."""
    if len(values) < SWING_FEWEST:
        return None
    begins = (len(values) // 3, len(values) // 2)
    parts = [values, *(values[begin:] for begin in begins if len(values) - begin >= SWING_FEWEST_OF_PART)]
    left = _without_trend(values)
    size, period = max(_strongest(_without_trend(part)) for part in parts)
    if size == 0.0 and error is not None and noise_of(values) > SWING_TIMES * error:
        size, period = float(left.std()) * math.sqrt(2), 2.0
    if size < SWING_SIZE or _rises(_calm(values, period), size) < SWING_CYCLES:
        return None
    return Swing(_onset(left), size)


def is_rough(values: Numbers, error: float | None = None) -> bool:
    """Whether training losses jump as an epoch's mean does not where all is well, though no period shows: unless
    `error` explains it."""
    if error is not None and noise_of(values) < SWING_TIMES * error:
        return False
    least = SWING_SIZE if noise_of(values) > SWING_SIZE else max(2 * SWING_SIZE, 8 * usual_noise(values))
    return _rises(values, least) > 1


def _without_trend(values: Numbers) -> Numbers:
    """What a slow curve of few parameters does not explain; exponential and power-like falls it does."""
    place = np.arange(len(values)) / len(values)
    columns = [np.ones_like(place), place, np.log1p(np.arange(len(values)))]
    columns += [place**2] if len(values) >= 12 else []
    columns += [place**3] if len(values) >= 20 else []
    basis = np.stack(columns, axis=1)
    return values - basis @ np.linalg.lstsq(basis, values, rcond=None)[0]


def _strongest(left: Numbers) -> tuple[float, float]:
    """Size and period of the strongest wave, or zeros where chance may have made it. White noise has its power in equal
    parts, each spread as an exponential: how often the largest of them takes this share of all is known (Fisher's
    test). Waves between the whole numbers of cycles are tried too, which is as if there were twice as many."""
    count = len(left)
    first = max(SWING_CYCLES if count >= 16 else 2, math.ceil(count / SWING_LONGEST))
    waves = np.abs(np.fft.rfft(left, FINER * count))  # the last: a period of two epochs
    power = waves**2
    power[-1] /= 2  # a cosine alone, where others have a sine too
    total = count * float(left @ left) / 2 - float(power[FINER : FINER * first : FINER].sum())
    if total <= 1e-9 * count**2:
        return 0.0, 0.0
    power[: FINER * first] = 0.0
    power[-FINER // 2 : -1] = 0.0  # almost a cosine alone
    at = int(power.argmax())
    parts = count / 2 - first + 1
    by_chance = 2 * parts * max(0.0, 1 - power[at] / total) ** (parts - 1)
    if by_chance > SWING_BY_CHANCE:
        return 0.0, 0.0
    return float(waves[at]) * (1 if at == len(waves) - 1 else 2) / count, FINER * count / at


def _calm(values: Numbers, period: float) -> Numbers:
    """Means over a quarter of the period: the wave stays, noise does not."""
    width = max(1, int(period / 4))
    return np.convolve(values, np.ones(width) / width, "valid")


def _rises(values: Numbers, size: float) -> int:
    """How often it goes up by `size` after having gone down by as much: a fall in steps never does."""
    count, low, high, is_up = 0, values[0], values[0], False
    for value in values:
        low, high = min(low, value), max(high, value)
        if not is_up and value > low + size:
            count, is_up, high = count + 1, True, value
        elif is_up and value < high - size:
            is_up, low = False, value
    return count


def _onset(left: Numbers) -> int:
    """Where the spread changes most, if it does: 0 where it swings from the beginning."""
    count, best, at = len(left), SWING_ONSET, 0
    squares = np.concatenate([[0.0], np.cumsum(left**2)])
    whole = count * math.log(squares[-1] / count + 1e-12)
    for place in range(3, count - 3):
        before, after = squares[place] / place, (squares[-1] - squares[place]) / (count - place)
        gain = whole - place * math.log(before + 1e-12) - (count - place) * math.log(after + 1e-12)
        if after > before and gain > best:
            best, at = gain, place
    return at
