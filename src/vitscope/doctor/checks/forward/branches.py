"""Does the picture get past each branch? A branch is silenced; round it the rest must still come through.

Where it does not, the block has lost its input: there is no residual connection.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vitscope.doctor.attention_parts import is_attention
from vitscope.doctor.calls import Call, calls_of, classifier_of, is_leaf, pass_with
from vitscope.doctor.finding import Finding, Seen
from vitscope.doctor.patient import Patient
from vitscope.doctor.thresholds.forward import ATTENTION_PICTURES, NO_SPREAD


@torch.no_grad()
def branches(patient: Patient) -> Seen:
    images, _ = patient.sample(ATTENTION_PICTURES)
    patient.model.eval()
    calls = calls_of(patient.model, images, lambda module: is_attention(module) or is_leaf(module))
    found = _branches(calls)
    if not found:
        return Seen(left_out="no_attention_to_see")
    head = classifier_of(patient.model, images[:2])
    watched = None if head is None else head.module
    lost = [
        name
        for name in found
        if _is_lost(patient, images, name, watched) and _is_lost_at_once(patient, images, name, calls)
    ]
    seen = Seen(measured={"branches": len(found), "lost": len(lost)})
    if lost:
        numbers = {"count": len(lost), "of": len(found), "names": ", ".join(lost[:3])}
        seen.findings.append(Finding("residual_missing", 0.95, numbers))
    return seen


def _branches(calls: list[Call]) -> list[str]:
    """Attentions over the tokens, and between two of them the layer that ends an MLP. What pools or merges tokens is
    none: nothing goes round it."""
    numbers = [number for number, call in enumerate(calls) if is_attention(call.module) and call.depth == 0]
    numbers = [number for number in numbers if calls[number].gave.shape == calls[number].given.shape]
    names: list[str] = []
    for place, number in enumerate(numbers):
        following = numbers[place + 1] if place + 1 < len(numbers) else None
        here = calls[number]
        names.append(here.name)
        between = calls[number + 1 : following] if following is not None else []
        ends = [call for call in between if _ends_mlp(call, here)]
        names += [ends[-1].name] if ends else []
    once = [name for name in names if sum(call.name == name for call in calls) == 1]
    return list(dict.fromkeys(once))


def _ends_mlp(call: Call, here: Call) -> bool:
    layer = call.module
    narrows = isinstance(layer, nn.Linear) and layer.in_features > layer.out_features and call.depth == 0
    return narrows and call.gave.numel() == here.gave.numel() and call.gave.shape[-1] == here.gave.shape[-1]


def _is_lost_at_once(patient: Patient, images: Tensor, name: str, calls: list[Call]) -> bool:
    """Also for what reads all tokens before the next attention does. The classifier may read one token only, to which
    the picture has no way but the last attention."""
    here = next(number for number, call in enumerate(calls) if call.name == name)
    later = [number for number in range(here + 1, len(calls)) if is_attention(calls[number].module)]
    until = calls[here + 1 : later[0] if later else None]
    readers = [call for call in until if call.given.shape == calls[here].gave.shape and call.depth == 0]
    return not readers or _is_lost(patient, images, name, readers[-1].module)


def _is_lost(patient: Patient, images: Tensor, name: str, head: nn.Module | None) -> bool:
    rows = pass_with(patient.model, images, {name: torch.zeros_like}, head).float()
    if rows.shape[0] != len(images):
        return False
    return float((rows - rows.mean(0)).norm()) <= NO_SPREAD * max(float(rows.norm()), 1e-12)
