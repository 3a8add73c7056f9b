"""The door for runs: what a run folder itself tells, after or during training; no model is needed."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Collection

from vitscope.core.run_view import RunView, read_run
from vitscope.doctor.check import Check
from vitscope.doctor.chosen import chosen
from vitscope.doctor.examination import Asked, OnCheck, Report
from vitscope.doctor.finding import Seen
from vitscope.doctor.run_curve import curve_check
from vitscope.doctor.run_layers import layers_check
from vitscope.doctor.run_lr import learning_rate_check
from vitscope.doctor.run_record import divergence_check, gradient_norms_check, pictures_check, steps_check
from vitscope.doctor.run_settings import settings_check

RUN_CHECKS: dict[str, Callable[[RunView], Seen]] = {
    "steps": steps_check,
    "divergence": divergence_check,
    "settings": settings_check,
    "curve": curve_check,
    "learning_rate": learning_rate_check,
    "gradient_norms": gradient_norms_check,
    "layers": layers_check,
    "pictures_left_out": pictures_check,
}
"""All of the stage `training`."""


def examine_run(
    folder: str | os.PathLike[str], *, only: Collection[str] = (), on_check: OnCheck | None = None
) -> Report:
    """Reads only; a run at work is not disturbed. `only`: names of `RUN_CHECKS`, or their stage."""
    only = chosen(only, RUN_CHECKS, ("training",))
    run = read_run(folder)
    problems = {"problems": list(run.problems)} if run.problems else {}
    subject = {"run": str(run.path), "state": run.state, "alive": run.is_alive, **problems}
    subject["steps"] = run.rows[-1]["step"] if run.rows else 0
    subject |= _accuracies(run)
    report = Report(subject=subject, needed=("curve",))
    for name, ask in RUN_CHECKS.items():
        if only and name not in only and "training" not in only:
            continue
        if on_check is not None:
            on_check(name)
        began = time.perf_counter()
        seen = ask(run)
        check = Check(name, "training", lambda patient, seen=seen: seen)
        report.asked.append(Asked(check, time.perf_counter() - began, seen))
    return report


def _accuracies(run: RunView) -> dict[str, float]:
    """What has come of it: healthy is not yet good."""
    found = {
        "train_accuracy": run.column("train/epoch_accuracy")[1][-1:],
        "best_val_accuracy": [max(known)] if (known := run.column("val/accuracy")[1]) else [],
        "test_accuracy": run.column("test/accuracy")[1][-1:],
    }
    return {name: values[0] for name, values in found.items() if values and math.isfinite(values[0])}
