"""What is asked of the settings, in order."""

from __future__ import annotations

from vitscope.doctor.check import Check
from vitscope.doctor.checks.settings.decay import weight_decay
from vitscope.doctor.checks.settings.drops import drops
from vitscope.doctor.checks.settings.guide_table import guide_table
from vitscope.doctor.checks.settings.head_dim import head_dim
from vitscope.doctor.checks.settings.lone_batch import lone_batch
from vitscope.doctor.checks.settings.patches import patches
from vitscope.doctor.checks.settings.position_table import position_table
from vitscope.doctor.checks.settings.updates import updates

CHECKS: tuple[Check, ...] = (
    Check("head_dim", "settings", head_dim),
    Check("patches", "settings", patches),
    Check("lone_batch", "settings", lone_batch),
    Check("drops", "settings", drops),
    Check("updates", "settings", updates),
    Check("weight_decay", "settings", weight_decay),
    Check("position_table", "settings", position_table),
    Check("guide_table", "settings", guide_table),
)
