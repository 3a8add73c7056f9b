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
from vitscope.doctor.checks.forward.loss_at_start import loss_at_start
from vitscope.doctor.checks.forward.normalisation import normalisation
from vitscope.doctor.checks.forward.position import position
from vitscope.doctor.checks.forward.runs import runs
from vitscope.doctor.checks.forward.squashed import squashed

CHECKS: tuple[Check, ...] = (
    Check("a pass comes through", "forward", runs),
    Check("softmax before the loss", "forward", squashed),
    Check("weights at the start", "forward", beginning),
    Check("each picture for itself", "forward", dependence),
    Check("loss at the start", "forward", loss_at_start),
    Check("position of patches", "forward", position),
    Check("inside attention", "forward", attention),
    Check("residual connections", "forward", branches),
    Check("normalisation", "forward", normalisation),
    Check("left to chance", "forward", chance),
    Check("evaluation mode", "forward", evaluation),
    Check("running mean of weights", "forward", average),
)
