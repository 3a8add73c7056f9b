"""What is asked of gradients and updates, in order."""

from __future__ import annotations

from vitscope.doctor.check import Check
from vitscope.doctor.checks.backward.dead_units import dead_units
from vitscope.doctor.checks.backward.half import half
from vitscope.doctor.checks.backward.hidden import hidden
from vitscope.doctor.checks.backward.moved import moved
from vitscope.doctor.checks.backward.norms import norms
from vitscope.doctor.checks.backward.reach import reach
from vitscope.doctor.checks.backward.schedule import schedule
from vitscope.doctor.checks.backward.step_gradient import step_gradient
from vitscope.doctor.checks.backward.step_mode import step_mode
from vitscope.doctor.checks.backward.step_size import step_size
from vitscope.doctor.checks.backward.zeroed import zeroed

CHECKS: tuple[Check, ...] = (
    Check("gradient_reach", "backward", reach),
    Check("optimizer_reach", "backward", moved),
    Check("hidden_weights", "backward", hidden),
    Check("gradient_norms", "backward", norms),
    Check("dead_units", "backward", dead_units),
    Check("step_gradient", "backward", step_gradient),
    Check("gradient_zeroed", "backward", zeroed),
    Check("step_mode", "backward", step_mode),
    Check("step_size", "backward", step_size),
    Check("fp16_gradients", "backward", half),
    Check("schedule", "backward", schedule),
)
