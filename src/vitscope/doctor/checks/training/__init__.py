"""What is asked by training for a while, in order."""

from __future__ import annotations

from vitscope.doctor.check import Check

CHECKS: tuple[Check, ...] = ()
