"""Is the gradient the optimiser gets the mean gradient of the batch: no multiple of it, and not clipped to nothing? And
do the weights then go down it?"""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from vitscope.doctor.as_it_came import as_it_came
from vitscope.doctor.finding import Change, Finding, Note, Seen
from vitscope.doctor.modes import train_without_chance
from vitscope.doctor.one_step import (
    EmptyStepError,
    StepSeen,
    cosine_of,
    length_of,
    mean_gradient,
    step_batch,
    watch_step,
)
from vitscope.doctor.patient import Patient, Trainer, has_own_step
from vitscope.doctor.still import still
from vitscope.doctor.thresholds.backward import (
    CLIPPED_SHARE,
    EXPLODING_NORM,
    SAME_DIRECTION,
    SUMMED_TIMES,
    UPHILL,
    WHOLE_NUMBER_SLACK,
)

SCALE_FREE = ("adam", "adamw", "muon")
"""Their steps are as long whatever the gradient's length; clipping takes its weight from single batches only."""


def step_gradient(patient: Patient) -> Seen:
    if patient.make_trainer is None:
        return Seen(left_out="no_optimizer")
    trainer = patient.make_trainer()
    is_new = patient.optimizer is None or not patient.optimizer.state
    images, labels = step_batch(patient, trainer)
    train_without_chance(patient.model)
    with still(patient.model, images):
        mean = mean_gradient(patient, images, labels)
        try:
            if has_own_step(trainer) and not _comes_to_its_update(patient, trainer, images, labels):
                return Seen(left_out="no_update_came")
            trainer.hold_lr(trainer.lr)
            step = watch_step(patient, trainer, images, labels, change=_without_decay)
        except EmptyStepError:
            return Seen(findings=[_empty(mean)])
    if step is None:
        return Seen(left_out="no_update_came")
    names = [name for name in step.grads if name in mean]
    norm, given = length_of(mean, names), length_of(step.grads, names)
    if norm == 0:
        return Seen(left_out="no_gradients")
    if given == 0:
        return Seen(findings=[_empty(mean)])
    patient.tried["calls"] = step.calls
    times, cosine = given / norm, cosine_of(step.grads, mean, names)
    seen = Seen(measured={"norm": norm, "given": given, "times": times, "cosine": cosine, "calls": step.calls})
    if is_new:  # what an optimiser remembers of other batches may point anywhere
        seen.measured["uphill"] = uphill = _uphill(step, mean, names)
        if uphill > UPHILL:
            numbers = {"uphill": uphill, "lr": trainer.lr, "optimizer": trainer.optimizer_name}
            seen.findings.append(Finding("steps_uphill", 0.95, numbers, ends=True))
            return seen
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


def _comes_to_its_update(patient: Patient, trainer: Trainer, images: Tensor, labels: Tensor) -> bool:
    """Takes a step that collects gradients over several calls to where it begins anew: what counts its calls may be in
    the middle of them, and a part of them would be measured. What was collected until there is left out."""
    with as_it_came(patient):
        trainer.hold_lr(0.0)
        return watch_step(patient, trainer, images, labels) is not None


def _empty(mean: dict[str, Tensor]) -> Finding:
    return Finding("step_without_gradients", 0.95, {"norm": length_of(mean, mean), "given": 0.0}, ends=True)


def _without_decay(group: dict[str, Any]) -> None:
    """Decay pulls towards zero, wherever the loss is lower."""
    if "weight_decay" in group:
        group["weight_decay"] = 0.0


def _uphill(step: StepSeen, mean: dict[str, Tensor], names: list[str]) -> float:
    """Cosine between the way the weights went and the way the loss rises: any sound first step has one below 0."""
    moves = {name: step.update(name) for name in names}
    return cosine_of(moves, mean, names)
