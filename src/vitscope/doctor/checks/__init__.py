"""The examination in its order, cheapest first."""

from __future__ import annotations

from vitscope.doctor.check import Check
from vitscope.doctor.checks import backward, data, forward, settings, training

CHECKS: tuple[Check, ...] = (*data.CHECKS, *settings.CHECKS, *forward.CHECKS, *backward.CHECKS, *training.CHECKS)
