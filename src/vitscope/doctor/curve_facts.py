"""What the rules for learning curves read: levels, trends and noise, each taken once."""

from __future__ import annotations

import math
import statistics
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from vitscope.doctor.thresholds.curves import CURVE_LEARNT, CURVE_RISE, CURVE_SURE, CURVE_SURE_FEW
from vitscope.doctor.trend import Numbers, change, lowest, noise_of, scaled, slope_of, smoothed

if TYPE_CHECKING:
    from vitscope.doctor.curve import Curve


class Facts:
    """Of the epochs whose losses are finite. Trends and noise are in logs, so that they are shares of the loss."""

    def __init__(self, curve: Curve) -> None:
        self.curve = curve
        train = [(e, x) for e, x in zip(curve.epochs, curve.train_loss, strict=True) if math.isfinite(x)]
        val = [(e, x) for e, x in zip(curve.epochs, curve.val_loss, strict=True) if x is not None and math.isfinite(x)]
        self.train_epochs, self.train = [e for e, _ in train], [x for _, x in train]
        self.val_epochs, self.val = [e for e, _ in val], [x for _, x in val]
        # Chance is where an untrained model stands; the first epoch's mean has much of the learning in it already.
        self.start = max(curve.loss_at_chance or max([*self.train[:1], *self.val[:1]], default=0.0), 1e-9)
        self.train_scaled, self.val_scaled = scaled(self.train, self.start), scaled(self.val, self.start)
        self.train_noise, self.noise = noise_of(self.train_scaled), noise_of(self.val_scaled)
        self.train_error = curve.train_error
        self.tail = max(3, len(val) // 4)
        self.train_tail = max(3, len(train) // 4)

    @property
    def sure(self) -> float:
        """Standard errors from which on a change is no chance: more of them where few values tell the noise."""
        return CURVE_SURE * (1 + CURVE_SURE_FEW / max(1, len(self.val)))

    @cached_property
    def train_lowest(self) -> int:
        return lowest(self.train_scaled)

    @cached_property
    def best(self) -> int:
        """Place among the evaluations."""
        return lowest(self.val_scaled)

    @cached_property
    def _rise(self) -> tuple[float, float]:
        after = len(self.val) - 1 - self.best
        if after < 3:  # nothing has risen; this is how much of a rise would have shown
            return 0.0, self.noise * math.sqrt(2 / self.tail)
        return change(self.val_scaled, self.best, min(self.tail, after), self.noise)

    @property
    def rise(self) -> float:
        return self._rise[0]

    @property
    def rise_error(self) -> float:
        return self._rise[1]

    @cached_property
    def is_rising(self) -> bool:
        """The validation loss, since its best: by more than chance, by enough to act on, and with a slope."""
        after = slice(self.best + 1, None)
        if len(self.val[after]) < 3 or self.rise < max(self.sure * self.rise_error, CURVE_RISE):
            return False
        slope, error = slope_of(self.val_epochs[after], self.val_scaled[after], self.noise)
        return slope > 2 * error or self.rise > 2 * self.sure * self.rise_error

    @cached_property
    def has_training_risen(self) -> bool:
        """Since validation was best: then it is not the training pictures that are learnt by heart."""
        since = [
            x for e, x in zip(self.train_epochs, self.train_scaled, strict=True) if e >= self.val_epochs[self.best]
        ]
        if len(since) < 4:
            return False
        count = max(2, len(since) // 3)
        error = self.train_noise * math.sqrt(2 / count)
        return float(np.mean(since[-count:]) - np.mean(since[:count])) > max(3 * error, CURVE_RISE)

    @cached_property
    def is_overconfident(self) -> bool:
        """Validation loss rises, and so does accuracy, to the end."""
        if not self.is_rising or len(self.curve.val_accuracy) != len(self.curve.epochs):
            return False
        pairs = zip(self.curve.epochs, self.curve.val_accuracy, strict=True)
        known = {e: x for e, x in pairs if x is not None and math.isfinite(x)}
        if any(e not in known for e in self.val_epochs):
            return False
        values = np.asarray([known[e] for e in self.val_epochs])
        tail = max(3, min(self.tail, len(values) - 1 - self.best))
        gained, error = change(values, self.best, tail, noise_of(values))
        calm = smoothed(values)
        return gained > max(3 * error, 0.005) and calm.max() - calm[-1] < max(2 * noise_of(values), 0.01)

    @property
    def train_end(self) -> float:
        return statistics.median(self.train[-self.train_tail :] or [math.inf])

    @property
    def val_end(self) -> float:
        return statistics.median(self.val[-self.tail :])

    @property
    def level(self) -> float:
        return min(self.train_end, self.val_end) / self.start

    @cached_property
    def is_falling(self) -> bool:
        """Both losses, in their later half: training for sure, and by enough that as many epochs again would show."""
        return self._falls(self.train_epochs, self.train_scaled, self.train_noise, self.sure) and self._falls(
            self.val_epochs, self.val_scaled, self.noise, 2.0
        )

    @cached_property
    def has_learnt(self) -> bool:
        """Training came down over the whole, by more than chance and by enough to see."""
        slope, error = slope_of(self.train_epochs, self.train_scaled, self.train_noise)
        return slope < -self.sure * error and self.train_end < CURVE_LEARNT * self.start

    @cached_property
    def falls_at_end(self) -> bool:
        """Where a schedule ends, losses often fall no more, although they did in the later half."""
        last = max(4, len(self.val) // 4)
        slope, error = slope_of(self.val_epochs[-last:], self.val_scaled[-last:], self.noise)
        return self.is_falling and slope < -2.0 * error

    @staticmethod
    def _falls(epochs: list[float], values: Numbers, noise: float, sure: float) -> bool:
        later = len(values) // 2
        slope, error = slope_of(epochs[later:], values[later:], noise)
        return slope < -sure * error and -slope * (epochs[-1] - epochs[later]) > CURVE_RISE

    @cached_property
    def gap(self) -> float | None:
        """Between the accuracies at the end, where both are known."""
        ends = []
        for given, tail in ((self.curve.train_accuracy, self.train_tail), (self.curve.val_accuracy, self.tail)):
            known = [x for x in given if x is not None and math.isfinite(x)]
            if len(known) < tail:
                return None
            ends.append(statistics.median(known[-tail:]))
        return ends[0] - ends[1]

    def parted(self) -> float:
        """The first epoch with half the distance between the losses that they have at the end."""
        train = dict(zip(self.train_epochs, self.train, strict=True))
        apart = [(e, x - train[e]) for e, x in zip(self.val_epochs, self.val, strict=True) if e in train]
        half = 0.5 * (self.val_end - self.train_end)
        calm = [statistics.median(x for _, x in apart[max(0, at - 1) : at + 2]) for at in range(len(apart))]
        return next((e for (e, _), x in zip(apart, calm, strict=True) if x > half), self.val_epochs[-1])

    def flat_from(self) -> float:
        """The first epoch after which training came down no further than noise does."""
        values = self.train_scaled
        end = float(np.mean(values[-self.train_tail :]))
        floor = end + max(1.5 * self.train_noise, 0.02)
        return next(e for e, x in zip(self.train_epochs, smoothed(values), strict=True) if x <= floor)
