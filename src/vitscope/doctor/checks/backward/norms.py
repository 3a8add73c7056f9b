"""How large are the gradients, layer by layer: none that explode, none that vanish on their way to the first layer?"""

from __future__ import annotations

import math

from vitscope.doctor.before_norm import weights_before_batch_norm
from vitscope.doctor.finding import Finding, Note, Seen
from vitscope.doctor.modes import train_without_chance
from vitscope.doctor.one_step import mean_gradient
from vitscope.doctor.patient import Patient
from vitscope.doctor.picture import Line, Picture
from vitscope.doctor.thresholds.backward import (
    EXPLODING_NORM,
    FADING_RATIO,
    LARGE_LAYER_NORM,
    NAMED_NORM,
    STEP_PICTURES,
    VANISHING_NORM,
)


def norms(patient: Patient) -> Seen:
    images, labels = patient.sample(STEP_PICTURES)
    train_without_chance(patient.model)
    grads = mean_gradient(patient, images, labels)
    if not grads:
        return Seen(left_out="no_gradients")
    every = {name: float(grad.float().norm()) for name, grad in grads.items()}
    layers = {name: norm for name, norm in every.items() if grads[name].ndim >= 2}
    total = math.hypot(*every.values())
    picture = Picture(
        "Gradient norm of each layer", "layer", "norm", [Line("norm", list(layers), list(layers.values()))],
        kind="bars", log_y=True, level=LARGE_LAYER_NORM,
    )  # fmt: skip
    seen = Seen(measured={"total": total, "largest": max(layers.values(), default=0.0)}, picture=picture)
    large = [name for name, norm in layers.items() if norm > LARGE_LAYER_NORM]
    for name in large[:5]:
        seen.notes.append(Note("large_gradient", {"name": name, "norm": layers[name]}))
    if total > NAMED_NORM or not math.isfinite(total):
        exploding = _exploding(patient, every, picture)
        seen.findings += exploding
        seen.notes += [] if exploding else [Note("large_gradients", {"total": total})]
    elif total < VANISHING_NORM:
        seen.findings.append(Finding("gradients_vanishing", 0.8, _fading(layers) | {"total": total}, picture=picture))
    if math.isfinite(total) and total >= VANISHING_NORM and not seen.findings:
        fading = _fading(layers)
        seen.measured["first_to_last"] = fading["ratio"]
        if 0 < fading["ratio"] < FADING_RATIO:
            seen.findings.append(Finding("gradients_vanishing", 0.65, fading | {"total": total}, picture=picture))
    return seen


def _exploding(patient: Patient, every: dict[str, float], picture: Picture) -> list[Finding]:
    """Weights before BatchNorm are left out: the shorter they are, the longer their gradient."""
    told = every
    if math.hypot(*every.values()) > EXPLODING_NORM:
        free = weights_before_batch_norm(patient)
        told = {name: norm for name, norm in every.items() if name not in free or not math.isfinite(norm)}
    total = math.hypot(*told.values())
    if total <= EXPLODING_NORM:
        return []
    worst = max(told, key=lambda name: told[name] if math.isfinite(told[name]) else math.inf)
    return [Finding("gradients_exploding", 0.6, {"total": total, "worst": worst, "norm": told[worst]}, picture=picture)]


def _fading(layers: dict[str, float]) -> dict[str, float]:
    """The first quarter of the layers against the last, each by its largest norm. A head of zeros passes nothing on
    yet: the ratio is then 0, and nothing is said."""
    values = list(layers.values())
    quarter = max(1, len(values) // 4)
    first, last = max(values[:quarter], default=0.0), max(values[-quarter:], default=0.0)
    return {"first": first, "last": last, "ratio": first / last if last > 0 else 0.0}
