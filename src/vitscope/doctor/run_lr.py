"""The learning rate, as a run's own steps tell of it: what the loss did while the rate was high.

A rate that is too high throws the weights out of where they began: the loss climbs above its start before anything is
learnt, or back up to it after a warm-up in which it fell. Shuffled labels, wrong pictures, an error in the model and a
rate that is too low leave it where it was.
"""

from __future__ import annotations

import itertools
import math
import statistics
from dataclasses import dataclass
from typing import Any

from vitscope.core.run_view import RunView
from vitscope.doctor.finding import Finding, Seen
from vitscope.doctor.picture import Line, Picture
from vitscope.doctor.run_curve import chance_of
from vitscope.doctor.run_record import config_file, lower_lr, lower_rate, lr_at
from vitscope.doctor.thresholds.runs import (
    GRADIENT_FELL,
    LEARNT,
    LOST_AGAIN,
    LOST_FAR,
    NOT_LEARNT,
    RISE_SURE,
    STARTS_FAR_OFF,
    THROWN,
    THROWN_FAR,
    WINDOW,
)


@dataclass(frozen=True)
class Step:
    number: int
    loss: float
    lr: float
    gradient: float | None


@dataclass(frozen=True)
class Rise:
    """From which loss to which, each a median of several steps, and where."""

    before: float
    after: float
    step: int
    lr: float
    """The rate of that step."""
    is_after_learning: bool = False

    @property
    def share(self) -> float:
        return self.after / self.before - 1


def learning_rate_check(run: RunView) -> Seen:
    """Asked of runs that have learnt little in the end: who learns bears the rate."""
    steps = _steps(run)
    chance = chance_of(run)
    if len(steps) < 2 * WINDOW and not (run.state == "diverged" and len(steps) > WINDOW):
        return Seen(left_out="too_few_steps" if steps else "nothing_recorded")
    first = steps[0].loss
    chance = first if chance is None else chance
    if not chance / STARTS_FAR_OFF < first < STARTS_FAR_OFF * chance:
        return Seen(left_out="started_elsewhere")
    start = max(first, chance)
    rise = _lost_again(steps, start) or _thrown(steps, start)
    end = statistics.median(step.loss for step in steps[-max(WINDOW, len(steps) // 10) :])
    fell = _gradient_after(steps, rise)
    measured: dict[str, Any] = {"start": start, "end": end}
    if rise is not None:
        measured |= {"from": rise.before, "to": rise.after, "step": rise.step, "lr": rise.lr, "gradient_share": fell}
    seen = Seen(measured=measured)
    # Of what is at work, only what has not come back yet: it may.
    limit = start if run.is_alive else NOT_LEARNT * start
    if rise is None or end < limit:
        # Where nothing was learnt a rate may be too high without any rise: that it rose nowhere is no health.
        seen.left_out = "rate_shows_nothing" if rise is None and end >= NOT_LEARNT * start else None
        return seen
    is_far = rise.share >= (LOST_FAR if rise.is_after_learning else THROWN_FAR)
    is_sure = is_far or (fell is not None and fell <= GRADIENT_FELL and not rise.is_after_learning)
    learnt = "run_learnt" if rise.is_after_learning else "run_start"
    numbers = {
        learnt: rise.before,
        "run_peak": rise.after,
        "run_step": rise.step,
        "run_lr": rise.lr,
        "run_end": end,
        "lr": lr_at(run, None),
        "lower": lower_rate(run),
        "config": config_file(run),
    }
    picture = _picture(steps, rise)
    seen.findings.append(Finding("lr_too_high", 0.87 if is_sure else 0.75, numbers, lower_lr(run), picture=picture))
    return seen


def _thrown(steps: list[Step], start: float) -> Rise | None:
    """Above its start, before anything was learnt."""
    losses = [step.loss for step in steps]
    middles: list[float] = []
    for place in range(len(losses) - WINDOW + 1):
        middle = statistics.median(losses[place : place + WINDOW])
        if middle < LEARNT * start:
            break
        middles.append(middle)
    if not middles:
        return None
    place = max(range(len(middles)), key=middles.__getitem__)
    error = _noise(losses[: len(middles) + WINDOW]) / math.sqrt(WINDOW)
    if middles[place] - start < max(THROWN * start, RISE_SURE * error):
        return None
    at = steps[place + WINDOW // 2]
    return Rise(start, middles[place], at.number, at.lr)


def _lost_again(steps: list[Step], start: float) -> Rise | None:
    """Lower during the warm-up than in all the time at its top."""
    most = max(step.lr for step in steps)
    top = next(place for place, step in enumerate(steps) if step.lr >= 0.95 * most)
    width = max(WINDOW, top // 4)
    before = [step.loss for step in steps[: top + 1]]
    high = [step for step in steps[top:] if step.lr >= most / 2]
    if len(before) < 2 * width or len(high) < width:
        return None
    middles = [statistics.median(before[place : place + width]) for place in range(len(before) - width + 1)]
    low, after = min(middles), statistics.median(step.loss for step in high)
    error = _noise([step.loss for step in steps]) / math.sqrt(width)
    if low > LEARNT * start or after - low < max(LOST_AGAIN * low, RISE_SURE * error):
        return None
    at = high[len(high) // 2]
    return Rise(low, after, at.number, at.lr, is_after_learning=True)


def _noise(losses: list[float]) -> float:
    """Of a median of one, as it were: spread from one step to the next, which no trend is in."""
    jumps = [abs(after - before) for before, after in itertools.pairwise(losses)]
    return 1.25 * 1.4826 * statistics.median(jumps or [0.0]) / math.sqrt(2)


def _gradient_after(steps: list[Step], rise: Rise | None) -> float | None:
    """Middle norm since the rise, as a share of that of the first steps: where weights were thrown far out, hardly any
    gradient is left."""
    if rise is None:
        return None
    first = [step.gradient for step in steps[: WINDOW // 2] if step.gradient is not None]
    since = [step.gradient for step in steps if step.number > rise.step and step.gradient is not None]
    if not first or len(since) < WINDOW or statistics.median(first) <= 0:
        return None
    return statistics.median(since) / statistics.median(first)


def _steps(run: RunView) -> list[Step]:
    """As they were first taken: a run may go back and take some anew at another rate."""
    found: list[Step] = []
    for row in run.rows:
        loss, lr, gradient = (_finite(row.get(f"train/{key}")) for key in ("loss", "lr", "grad_norm"))
        if loss is None or lr is None:
            continue
        if found and row["step"] <= found[-1].number:
            break
        found.append(Step(row["step"], loss, lr, gradient))
    return found


def _finite(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and math.isfinite(value) else None


def _picture(steps: list[Step], rise: Rise) -> Picture:
    line = Line("loss", [step.number for step in steps], [step.loss for step in steps])
    return Picture("Loss of the steps", "step", "loss", [line], mark=rise.step, level=rise.before)
