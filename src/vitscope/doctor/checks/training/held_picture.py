"""Runs at held rates as a picture."""

from __future__ import annotations

import math
from collections.abc import Sequence

from vitscope.doctor.experiments.held import HeldRun
from vitscope.doctor.picture import Line, Picture


def picture_of(
    runs: Sequence[HeldRun], *, names: Sequence[str] | None = None, title: str = "Loss at held learning rates"
) -> Picture:
    named = zip(names or [f"lr {run.lr:.2g}" for run in runs], runs, strict=True)
    lines = [
        Line(name, list(range(len(run.losses))), [loss if math.isfinite(loss) else math.nan for loss in run.losses])
        for name, run in named
    ]
    return Picture(title, "step", "loss", lines, log_y=all(loss > 0 for line in lines for loss in line.y))


def plain(number: float) -> float | None:
    """For JSON: what is not finite is absent."""
    return number if math.isfinite(number) else None
