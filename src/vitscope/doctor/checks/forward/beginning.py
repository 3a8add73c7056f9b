"""Do the weights begin as weights should: with a spread, and not so large that every layer blows its input up?

The gain of a layer is rms(weight) * sqrt(numbers it adds up): what it does to the size of an unstructured input.
"""

from __future__ import annotations

import math
from statistics import median

import torch
from torch import nn

from vitscope.doctor.finding import Finding, Seen
from vitscope.doctor.patient import Patient
from vitscope.doctor.picture import Line, Picture
from vitscope.doctor.thresholds.forward import LARGEST_GAIN, SAME_WEIGHTS_SHARE

LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.MultiheadAttention)


@torch.no_grad()
def beginning(patient: Patient) -> Seen:
    weights = layer_weights(patient.model)
    if not weights:
        return Seen(left_out="no_layers")
    if patient.facts.is_pretrained:
        return Seen(left_out="weights_from_elsewhere")
    gains = {name: gain(weight) for name, weight in weights.items()}
    same = [name for name, weight in weights.items() if float(weight.std()) == 0.0]
    middle = median(gains.values())
    picture = Picture(
        "Gain of each layer's weights", "layer", "gain", [Line("gain", list(gains), list(gains.values()))], kind="bars"
    )
    seen = Seen(measured={"gain": middle, "largest_gain": max(gains.values()), "same": len(same)}, picture=picture)
    if len(same) >= max(2, SAME_WEIGHTS_SHARE * len(weights)):
        numbers = {"count": len(same), "of": len(weights), "names": ", ".join(same[:3])}
        seen.findings.append(Finding("init_zero", 0.96, numbers, ends=True))
    elif middle > LARGEST_GAIN:
        worst = max(gains, key=lambda name: gains[name])
        numbers = {"gain": middle, "largest": gains[worst], "worst": worst, "usual": 0.6, "divide": middle / 0.6}
        seen.findings.append(Finding("init_too_large", 0.93, numbers, picture=picture))
    return seen


def layer_weights(model: nn.Module) -> dict[str, torch.Tensor]:
    """Of linear layers and convolutions, torch's attention included."""
    found: dict[str, torch.Tensor] = {}
    for name, module in model.named_modules():
        for key, weight in module.named_parameters(recurse=False):
            counts = isinstance(module, LAYERS) or type(module).__name__ == "PatchFilter"
            if counts and weight.ndim >= 2 and weight.numel() > 1 and "bias" not in key:
                found[f"{name}.{key}".removesuffix(".weight").strip(".")] = weight
    return found


def gain(weight: torch.Tensor) -> float:
    return float(weight.float().pow(2).mean().sqrt() * math.sqrt(weight[0].numel()))
