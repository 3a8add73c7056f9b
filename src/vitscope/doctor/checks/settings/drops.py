"""How much of what it computes does the model throw away while training?"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from vitscope.doctor.anatomy import is_drop
from vitscope.doctor.finding import Change, Finding, Seen
from vitscope.doctor.patient import Patient
from vitscope.doctor.thresholds.settings import HEAVY_DROP, MOST_DROP

PICTURES = 16


def drops(patient: Patient) -> Seen:
    """Measured on a batch in training mode: what comes out as zero that did not go in as zero."""
    dropping = {name: one for name, one in patient.model.named_modules() if is_drop(one)}
    rate = patient.facts.drop_rate
    if not dropping and rate is None:
        return Seen(left_out="no_dropout")
    shares: dict[str, float] = {}
    hooks = [one.register_forward_hook(_counter(name, shares)) for name, one in dropping.items()]
    try:
        patient.model.train()
        images, _ = patient.sample(PICTURES)
        with torch.no_grad():
            patient.model(images)
    finally:
        for hook in hooks:
            hook.remove()
    if not shares:
        return Seen(left_out="no_dropout")
    where = max(shares, key=shares.__getitem__)
    numbers = {"share": shares[where], "layer": where, "layers": sum(one >= HEAVY_DROP for one in shares.values())}
    seen = Seen(measured={"dropped": round(shares[where], 3), "layer": where})
    is_path = "path" in type(dropping[where]).__name__.lower()
    if shares[where] >= HEAVY_DROP and (not is_path or numbers["layers"] > 1):
        changes = ()
        if patient.settings is not None:
            changes = (Change("model.drop_path_rate" if is_path else "model.drop_rate", 0.1),)
        sure = 0.9 if shares[where] >= MOST_DROP else 0.6
        seen.findings.append(Finding("dropout_too_high", sure, numbers, changes))
    return seen


def _counter(name: str, shares: dict[str, float]) -> Any:
    def count(_: nn.Module, given: tuple[Any, ...], out: Any) -> None:
        if given and isinstance(given[0], Tensor) and isinstance(out, Tensor) and given[0].shape == out.shape:
            there = given[0] != 0
            if bool(there.any()):
                shares[name] = max(shares.get(name, 0.0), float((out[there] == 0).double().mean()))

    return count
