"""How much of what the classifier sees is left to chance in training mode?"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from vitscope.doctor.calls import classifier_of, pass_with
from vitscope.doctor.finding import Change, Finding, Seen
from vitscope.doctor.modes import drop_rates, train_with_still_norms
from vitscope.doctor.patient import Patient
from vitscope.doctor.thresholds.forward import CHANCE_AGREEMENT, FORWARD_PICTURES, HIGH_DROP_RATE

PASSES = 4


@torch.no_grad()
def chance(patient: Patient) -> Seen:
    model = patient.model
    if not any(drop_rates(module) for module in model.modules()):
        return Seen(left_out="nothing_left_to_chance")
    images, _ = patient.sample(FORWARD_PICTURES)
    model.eval()
    head = classifier_of(model, images[:2])
    train_with_still_norms(model)
    rows = [pass_with(model, images, {}, None if head is None else head.module) for _ in range(PASSES)]
    agreement = _agreement([one.flatten(1).float() for one in rows])
    rate = max(rate for module in model.modules() for rate in drop_rates(module))
    seen = Seen(measured={"agreement": agreement, "drop_rate": rate})
    if agreement < CHANCE_AGREEMENT and rate > HIGH_DROP_RATE:
        numbers = {"agreement": agreement, "rate": rate}
        changes = (Change("model.drop_rate", 0.1),) if patient.facts.drop_rate == rate else ()
        seen.findings.append(Finding("dropout_too_high", 0.85, numbers, changes if patient.settings else ()))
    return seen


def _agreement(rows: list[Tensor]) -> float:
    """Mean cosine between two passes of the same pictures."""
    pairs = [(one, other) for number, one in enumerate(rows) for other in rows[number + 1 :]]
    return float(torch.stack([F.cosine_similarity(one, other).mean() for one, other in pairs]).mean())
