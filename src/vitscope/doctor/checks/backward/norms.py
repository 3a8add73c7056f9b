"""How large are the gradients, layer by layer: none that explode, none that vanish on their way to the first layer?"""

from __future__ import annotations

import math

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
    layers = {name: float(grad.float().norm()) for name, grad in grads.items() if grad.ndim >= 2}
    total = math.sqrt(sum(float(grad.float().pow(2).sum()) for grad in grads.values()))
    picture = Picture(
        "Gradient norm of each layer", "layer", "norm", [Line("norm", list(layers), list(layers.values()))],
        kind="bars", log_y=True, level=LARGE_LAYER_NORM,
    )  # fmt: skip
    seen = Seen(measured={"total": total, "largest": max(layers.values(), default=0.0)}, picture=picture)
    large = [name for name, norm in layers.items() if norm > LARGE_LAYER_NORM]
    for name in large[:5]:
        seen.notes.append(Note("large_gradient", {"name": name, "norm": layers[name]}))
    if NAMED_NORM < total <= EXPLODING_NORM:
        seen.notes.append(Note("large_gradients", {"total": total}))
    if not math.isfinite(total) or total > EXPLODING_NORM:
        worst = max(layers, key=lambda name: layers[name] if math.isfinite(layers[name]) else math.inf)
        numbers = {"total": total, "worst": worst, "norm": layers[worst]}
        seen.findings.append(Finding("gradients_exploding", 0.6, numbers, picture=picture))
    elif total < VANISHING_NORM:
        seen.findings.append(Finding("gradients_vanishing", 0.8, _fading(layers) | {"total": total}, picture=picture))
    else:
        fading = _fading(layers)
        seen.measured["first_to_last"] = fading["ratio"]
        if 0 < fading["ratio"] < FADING_RATIO:
            seen.findings.append(Finding("gradients_vanishing", 0.65, fading | {"total": total}, picture=picture))
    return seen


def _fading(layers: dict[str, float]) -> dict[str, float]:
    """The first quarter of the layers against the last, each by its largest norm. A head of zeros passes nothing on
    yet: the ratio is then 0, and nothing is said."""
    values = list(layers.values())
    quarter = max(1, len(values) // 4)
    first, last = max(values[:quarter], default=0.0), max(values[-quarter:], default=0.0)
    return {"first": first, "last": last, "ratio": first / last if last > 0 else 0.0}
