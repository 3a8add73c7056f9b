"""What is asked of the forward pass, in order."""

from __future__ import annotations

from vitscope.doctor.check import Check

CHECKS: tuple[Check, ...] = ()
