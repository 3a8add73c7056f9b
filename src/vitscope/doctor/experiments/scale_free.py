"""Weights whose length the model does not see, because a normalisation over the batch follows them.

SGD's gradient stands at right angles to such weights and shrinks as they grow: steps that are too large make them
longer and so the next steps smaller, until they fit (Arora, Li and Lyu 2019, "Theoretical analysis of auto rate-tuning
by batch normalization"). A rate that throws the first steps far off may then be right for the run.
"""

from __future__ import annotations

import torch

from vitscope.doctor.as_it_came import as_it_came
from vitscope.doctor.modes import train_without_chance
from vitscope.doctor.patient import Patient
from vitscope.doctor.thresholds.training import SCALE_FREE_CHANGE, SCALE_FREE_LOOKED, SCALE_FREE_PICTURES


@torch.no_grad()
def scale_free_share(patient: Patient) -> float:
    """Of the numbers in weight matrices, the largest first, as far as they are looked at: twice as long, they leave the
    logits as they were."""
    matrices = sorted((one for one in patient.model.parameters() if one.ndim > 1), key=lambda one: -one.numel())
    total = sum(one.numel() for one in matrices)
    looked, free = 0, 0
    with as_it_came(patient):
        train_without_chance(patient.model)
        images, _ = patient.sample(SCALE_FREE_PICTURES)
        before = patient.logits(images).float()
        for one in matrices:
            if looked >= SCALE_FREE_LOOKED * total:
                break
            one.mul_(2)
            change = (patient.logits(images).float() - before).norm()
            one.div_(2)
            looked += one.numel()
            free += one.numel() if change <= SCALE_FREE_CHANGE * before.norm() else 0
    return free / looked if looked else 0.0
