"""What is asked by training for a while, in order."""

from __future__ import annotations

from vitscope.doctor.check import Check
from vitscope.doctor.checks.training.cold_start import warm_up
from vitscope.doctor.checks.training.lr import first_steps, lr_test
from vitscope.doctor.checks.training.overfit import one_batch
from vitscope.doctor.checks.training.short_run import short_run
from vitscope.doctor.checks.training.sweep import sweep

CHECKS: tuple[Check, ...] = (
    Check("overfit", "training", one_batch, is_quick=False),
    Check("first_steps", "training", first_steps),
    Check("warm_up", "training", warm_up),
    Check("lr_test", "training", lr_test, is_quick=False),
    Check("short_run", "training", short_run, is_quick=False),
    Check("classic_sweep", "training", sweep, is_quick=False, on_request=True),
)
