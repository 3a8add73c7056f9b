"""Does a pass come through at all, with one finite row of logits for each picture?"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from vitscope.doctor.calls import calls_of
from vitscope.doctor.finding import Finding, Seen
from vitscope.doctor.patient import Patient
from vitscope.doctor.thresholds.forward import FORWARD_PICTURES

PREFIX_TOKENS = range(17)
"""Class, distillation and register tokens a table may have rows for."""


def runs(patient: Patient) -> Seen:
    images, _ = patient.sample(FORWARD_PICTURES)
    patient.model.eval()
    try:
        with torch.no_grad():
            logits = patient.logits(images)
    except Exception as error:  # whatever a model may raise: assertions of its sizes are the commonest
        return Seen(findings=[_fails(patient, images, error)])
    seen = Seen(measured={"shape": list(logits.shape), "largest": _largest(logits)})
    if logits.ndim != 2 or logits.shape[0] != len(images) or logits.shape[1] != patient.num_classes:
        numbers = {"shape": tuple(logits.shape), "pictures": len(images), "classes": patient.num_classes}
        seen.findings.append(Finding("output_shape_wrong", 0.97, numbers, ends=True))
    elif not torch.isfinite(logits).all() and bool(torch.isfinite(images).all()):
        seen.findings.append(_not_finite(patient, images, logits))
    return seen


def _fails(patient: Patient, images: Tensor, error: Exception) -> Finding:
    message = str(error).splitlines()[0] if str(error) else type(error).__name__
    table = _misfit_table(patient, images)
    if table is not None:
        name, rows, patches = table
        numbers = {"name": name, "rows": rows, "patches": patches, "message": message}
        return Finding("position_table_wrong_size", 0.97, numbers, ends=True)
    numbers = {"shape": tuple(images.shape), "error": type(error).__name__, "message": message}
    return Finding("forward_fails", 0.97, numbers, ends=True)


def _misfit_table(patient: Patient, images: Tensor) -> tuple[str, int, int] | None:
    """A position table whose rows are not the picture's patches, with or without tokens before them."""
    patch = patient.facts.patch_size
    if patch is None:
        return None
    patches = (images.shape[-2] // patch[0]) * (images.shape[-1] // patch[1])
    tables = (*patient.model.named_parameters(), *patient.model.named_buffers())
    for name, table in tables:
        is_table = "pos" in name.rpartition(".")[2].lower() and table.ndim in (2, 3) and table.is_floating_point()
        if is_table and table.shape[-2] - patches not in PREFIX_TOKENS:
            return name, int(table.shape[-2]), patches
    return None


def _not_finite(patient: Patient, images: Tensor, logits: Tensor) -> Finding:
    calls = calls_of(patient.model, images)
    first = next((call for call in calls if not torch.isfinite(call.gave).all()), None)
    share = 1 - float(torch.isfinite(logits).float().mean())
    bad = [name for name, one in patient.model.named_parameters() if not torch.isfinite(one).all()]
    numbers = {
        "layer": first.name if first is not None else "the model",
        "kind": type(first.module).__name__ if first is not None else type(patient.model).__name__,
        "share": share,
        "largest_before": _largest(first.given) if first is not None else math.nan,
        "bad_weights": ", ".join(bad[:3]) or "-",
    }
    return Finding("outputs_not_finite", 0.97, numbers, ends=True)


def _largest(values: Tensor) -> float:
    finite = values[torch.isfinite(values)]
    return float(finite.abs().max()) if finite.numel() else math.nan
