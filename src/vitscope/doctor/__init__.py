"""Examines a training set-up the way an expert would: in order, with evidence, and leaves no trace on it."""

from __future__ import annotations

from vitscope.doctor.check_up import check_up

__all__ = ["check_up"]
