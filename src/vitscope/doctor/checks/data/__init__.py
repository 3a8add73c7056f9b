"""What is asked of pictures and labels, in order."""

from __future__ import annotations

from vitscope.doctor.check import Check

CHECKS: tuple[Check, ...] = ()
