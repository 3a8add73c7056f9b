"""Causes that lie in how training goes."""

from __future__ import annotations

from vitscope.doctor.causes.text import Cause, Remark

CAUSES: tuple[Cause, ...] = ()
NOTES: tuple[Remark, ...] = ()
LEFT_OUT: tuple[Remark, ...] = ()
