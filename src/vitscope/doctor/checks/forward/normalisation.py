"""Is anything normalised between the attentions of a transformer? Without it sizes drift from layer to layer."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vitscope.doctor.attention_parts import is_attention
from vitscope.doctor.calls import Call, calls_of, is_leaf
from vitscope.doctor.finding import Finding, Seen
from vitscope.doctor.patient import Patient
from vitscope.doctor.picture import Line, Picture
from vitscope.doctor.thresholds.forward import ATTENTION_PICTURES, UNEVEN_TOKENS

FEWEST = 2
"""Attentions it takes to speak of between."""


@torch.no_grad()
def normalisation(patient: Patient) -> Seen:
    images, _ = patient.sample(ATTENTION_PICTURES)
    patient.model.eval()
    calls = calls_of(patient.model, images, lambda module: is_attention(module) or is_leaf(module))
    numbers = [number for number, call in enumerate(calls) if is_attention(call.module)]
    if len(numbers) < FEWEST:
        return Seen(left_out="no_attention_to_see")
    sizes = [_sizes(calls[number]) for number in numbers]
    means = [float(one.mean()) for one in sizes]
    # Normalised tokens have one size, also where that is done by a function no hook sees. The first attention of a
    # post-norm model gets its tokens as they come.
    uneven = min(float(one.std() / one.mean().clamp_min(1e-12)) for one in sizes[1:])
    picture = Picture(
        "Size of the tokens that enter attention", "layer", "rms", [Line("rms", list(range(len(means))), means)]
    )
    seen = Seen(measured={"sizes": means, "uneven": uneven}, picture=picture)
    between = [call for call in calls[numbers[0] + 1 : numbers[-1]] if call.depth == 0]
    has_norm = any("norm" in type(call.module).__name__.lower() for call in between)
    if not has_norm and uneven > UNEVEN_TOKENS and not _scales_branches(patient.model):
        given = {"attentions": len(numbers), "first": means[0], "last": means[-1], "uneven": uneven}
        seen.findings.append(Finding("normalisation_missing", 0.85, given, picture=picture))
    return seen


def _sizes(call: Call) -> Tensor:
    return call.given.float().pow(2).mean(-1).sqrt().flatten()


def _scales_branches(model: nn.Module) -> bool:
    """Learned scales of branches (ReZero, LayerScale, dynamic tanh) are another way to the same end."""
    for module in model.modules():
        own = [parameter for name, parameter in module.named_parameters(recurse=False) if "bias" not in name]
        plain = isinstance(module, nn.Linear | nn.MultiheadAttention) or "norm" in type(module).__name__.lower()
        if not plain and any(parameter.ndim <= 1 for parameter in own):
            return True
    return False
