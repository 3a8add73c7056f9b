"""What is asked of gradients and updates, in order."""

from __future__ import annotations

from vitscope.doctor.check import Check

CHECKS: tuple[Check, ...] = ()
