"""What is asked of the forward pass, in order."""

from __future__ import annotations

from vitscope.doctor.check import Check
from vitscope.doctor.checks.forward.attention import attention
from vitscope.doctor.checks.forward.average import average
from vitscope.doctor.checks.forward.beginning import beginning
from vitscope.doctor.checks.forward.branches import branches
from vitscope.doctor.checks.forward.chance import chance
from vitscope.doctor.checks.forward.dependence import dependence
from vitscope.doctor.checks.forward.evaluation import evaluation
from vitscope.doctor.checks.forward.labels_taken import labels_taken
from vitscope.doctor.checks.forward.loss_at_start import loss_at_start
from vitscope.doctor.checks.forward.normalisation import normalisation
from vitscope.doctor.checks.forward.position import position
from vitscope.doctor.checks.forward.runs import runs
from vitscope.doctor.checks.forward.softmax_axis import softmax_axis
from vitscope.doctor.checks.forward.squashed import squashed
from vitscope.doctor.checks.forward.unbounded import unbounded

CHECKS: tuple[Check, ...] = (
    Check("forward_pass", "forward", runs),
    Check("labels_taken", "forward", labels_taken),
    Check("room_for_logits", "forward", squashed),
    Check("floor_of_loss", "forward", unbounded),
    Check("first_weights", "forward", beginning),
    Check("pictures_apart", "forward", dependence),
    Check("first_loss", "forward", loss_at_start),
    Check("positions", "forward", position),
    Check("attention", "forward", attention),
    Check("softmax_axis", "forward", softmax_axis),
    Check("residuals", "forward", branches),
    Check("normalisation", "forward", normalisation),
    Check("left_to_chance", "forward", chance),
    Check("evaluation_mode", "forward", evaluation),
    Check("weight_average", "forward", average),
)
