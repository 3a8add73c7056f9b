"""Is the gradient the optimiser gets the mean gradient of the batch: no multiple of it, and not clipped to nothing?"""

from __future__ import annotations

import math

from torch import Tensor

from vitscope.doctor.finding import Change, Finding, Note, Seen
from vitscope.doctor.modes import train_without_chance
from vitscope.doctor.one_step import mean_gradient, step_batch, watch_step
from vitscope.doctor.patient import Patient
from vitscope.doctor.still import still
from vitscope.doctor.thresholds.backward import (
    CLIPPED_SHARE,
    EXPLODING_NORM,
    SAME_DIRECTION,
    SUMMED_TIMES,
    WHOLE_NUMBER_SLACK,
)

SCALE_FREE = ("adam", "adamw", "muon")
"""Their steps are as long whatever the gradient's length; clipping takes its weight from single batches only."""


def step_gradient(patient: Patient) -> Seen:
    if patient.make_trainer is None:
        return Seen(left_out="no_optimizer")
    trainer = patient.make_trainer()
    images, labels = step_batch(patient, trainer)
    train_without_chance(patient.model)
    with still(patient.model, images):
        mean = mean_gradient(patient, images, labels)
        step = watch_step(patient, trainer, images, labels)
    if step is None:
        return Seen(left_out="no_update_came")
    names = [name for name in step.grads if name in mean]
    norm, given = _norm(mean, names), _norm(step.grads, names)
    if norm == 0 or given == 0:
        return Seen(left_out="no_gradients")
    product = sum(float((step.grads[name].float() * mean[name].float()).sum()) for name in names)
    times, cosine = given / norm, product / (norm * given)
    seen = Seen(measured={"norm": norm, "given": given, "times": times, "cosine": cosine, "calls": step.calls})
    if cosine < SAME_DIRECTION:
        return seen  # another loss, or pictures changed within the step: the two cannot be compared
    numbers = {"norm": norm, "given": given, "times": times, "share": times, "parts": round(times)}
    whole = abs(times - round(times)) <= WHOLE_NUMBER_SLACK * times
    if times > SUMMED_TIMES and whole:
        seen.findings.append(Finding("accumulation_not_divided", 0.9, numbers))
    elif times < CLIPPED_SHARE and norm < EXPLODING_NORM and math.isfinite(norm):
        if trainer.optimizer_name in SCALE_FREE:
            seen.notes.append(Note("clip_small", {"grad_norm": norm, "clip_norm": given}))
            return seen
        changes = (Change("optim.clip_norm", 1.0),) if patient.settings is not None else ()
        sure = 0.92 if trainer.optimizer_name == "sgd" else 0.6
        seen.findings.append(Finding("clip_too_small", sure, numbers, changes))
    return seen


def _norm(grads: dict[str, Tensor], names: list[str]) -> float:
    return math.sqrt(sum(float(grads[name].float().pow(2).sum()) for name in names))
