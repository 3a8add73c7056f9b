"""Does the loss have the softmax that its logits need? Where it has none (NLLLoss) it wants log-probabilities, and with
logits it falls without end as all of them rise together, whatever the picture."""

from __future__ import annotations

import itertools

import torch

from vitscope.doctor.finding import Finding, Seen
from vitscope.doctor.patient import Patient
from vitscope.doctor.picture import Line, Picture
from vitscope.doctor.thresholds.forward import FORWARD_PICTURES, PROBABILITY_SLACK

RAISED = (0.0, 10.0, 20.0, 40.0)
"""By how much all logits are raised alike: to a softmax that is nothing."""


@torch.no_grad()
def unbounded(patient: Patient) -> Seen:
    images, labels = patient.sample(FORWARD_PICTURES)
    patient.model.eval()
    logits = patient.logits(images).float()
    if logits.shape[-1] < 2:
        return Seen(left_out="one_output")
    total = float(logits.logsumexp(-1).abs().max())
    losses = [float(patient.loss(logits + more, labels)) for more in RAISED]
    falls = [before - after for before, after in itertools.pairwise(losses)]
    slope = falls[0] / RAISED[1]
    # As steep all the way: a line has no lowest point.
    is_line = slope > 0 and abs(falls[-1] - slope * (RAISED[-1] - RAISED[-2])) < 0.01 * falls[-1]
    seen = Seen(measured={"slope": slope, "log_of_total": total})
    if is_line and slope > PROBABILITY_SLACK and total > PROBABILITY_SLACK:
        lines = [Line("loss", list(RAISED), losses)]
        picture = Picture("Loss where all logits are raised alike", "raised by", "loss", lines)
        numbers = {"start": losses[0], "raised": RAISED[-1], "end": losses[-1]}
        seen.findings.append(Finding("log_softmax_missing", 0.96, numbers, picture=picture, ends=True))
    return seen
