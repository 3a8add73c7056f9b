"""Are there units that no picture ever wakes?"""

from __future__ import annotations

import torch
from torch import nn

from vitscope.doctor.calls import Call, calls_of
from vitscope.doctor.finding import Finding, Seen
from vitscope.doctor.modes import train_without_chance
from vitscope.doctor.patient import Patient
from vitscope.doctor.thresholds.backward import DEAD_SHARE
from vitscope.doctor.thresholds.forward import START_PICTURES

ASLEEP: dict[type[nn.Module], float] = {nn.ReLU: 0.0, nn.ReLU6: 0.0, nn.GELU: -4.0, nn.SiLU: -8.0}
"""What goes in below this comes out as nothing, and so does its gradient."""


def dead_units(patient: Patient) -> Seen:
    if not any(type(module) in ASLEEP for module in patient.model.modules()):
        return Seen(left_out="no_activations_to_see")
    images, _ = patient.sample(START_PICTURES)
    train_without_chance(patient.model)
    calls = calls_of(patient.model, images, lambda module: type(module) in ASLEEP)
    if not calls:
        return Seen(left_out="no_activations_to_see")
    shares = {f"{call.name}#{number}": _dead(call) for number, call in enumerate(calls)}
    worst = max(shares, key=lambda name: shares[name])
    mean = sum(shares.values()) / len(shares)
    seen = Seen(measured={"dead": mean, "worst": shares[worst]})
    if mean > DEAD_SHARE:
        numbers = {"mean": mean, "worst": worst.rpartition("#")[0], "share": shares[worst]}
        seen.findings.append(Finding("dead_units", 0.7, numbers))
    return seen


def _dead(call: Call) -> float:
    """Of convolutions a unit is a channel, of anything else the last axis."""
    axis = 1 if call.given.ndim == 4 else call.given.ndim - 1
    others = [one for one in range(call.given.ndim) if one != axis]
    return float((torch.amax(call.given, others) <= ASLEEP[type(call.module)]).float().mean())
