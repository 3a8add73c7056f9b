"""What is asked of gradients and updates, in order."""

from __future__ import annotations

from vitscope.doctor.check import Check
from vitscope.doctor.checks.backward.dead_units import dead_units
from vitscope.doctor.checks.backward.half import half
from vitscope.doctor.checks.backward.moved import moved
from vitscope.doctor.checks.backward.norms import norms
from vitscope.doctor.checks.backward.reach import reach
from vitscope.doctor.checks.backward.step_gradient import step_gradient
from vitscope.doctor.checks.backward.step_size import step_size

CHECKS: tuple[Check, ...] = (
    Check("gradients reach everything", "backward", reach),
    Check("the optimiser moves everything", "backward", moved),
    Check("gradient norms", "backward", norms),
    Check("dead units", "backward", dead_units),
    Check("gradient of one step", "backward", step_gradient),
    Check("size of one step", "backward", step_size),
    Check("gradients in fp16", "backward", half),
)
