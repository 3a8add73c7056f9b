"""What is asked of the settings, in order."""

from __future__ import annotations

from vitscope.doctor.check import Check

CHECKS: tuple[Check, ...] = ()
