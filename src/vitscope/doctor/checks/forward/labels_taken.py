"""Does the loss take the labels as the loader gives them? Elsewhere they are looked at as one class each, whatever
their form."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from vitscope.doctor.finding import Finding, Seen
from vitscope.doctor.patient import Patient, has_own_step

PICTURES = 8
FORMS: dict[str, Callable[[Tensor], Tensor]] = {
    "labels.long()": Tensor.long,
    "labels.squeeze(1)": lambda labels: labels.squeeze(1),
    "labels.squeeze(1).long()": lambda labels: labels.squeeze(1).long(),
    "labels.float()": Tensor.float,
    "labels.unsqueeze(1).float()": lambda labels: labels.unsqueeze(1).float(),
}
"""What may be all that is missing, simplest first."""


def labels_taken(patient: Patient) -> Seen:
    if patient.settings is not None:
        return Seen()  # the engine's labels are the engine's own
    images, labels = (one[:PICTURES].to(patient.device) for one in next(patient.train()))
    seen = Seen(measured={"dtype": _named(labels), "shape": list(labels.shape)})
    take = _taker(patient, images)
    message = _refusal(take, labels)
    if message is None:
        return seen
    fitting = (form for form in FORMS if (labels.ndim > 1 or ".squeeze" not in form) and _differs(form, labels))
    right = next((form for form in fitting if _refusal(take, FORMS[form](labels)) is None), None)
    # Else it is not their form that is refused; nor is it where they are taken now, as by a step that failed once.
    if right is not None and (message := _refusal(take, labels)) is not None:
        numbers = {"dtype": _named(labels), "shape": tuple(labels.shape), "message": message, "form": right}
        is_seen_through = not labels.is_floating_point()
        seen.findings.append(Finding("labels_not_taken", 0.97, numbers, ends=not is_seen_through))
    return seen


def _differs(form: str, labels: Tensor) -> bool:
    formed = FORMS[form](labels)
    return (formed.dtype, formed.shape) != (labels.dtype, labels.shape)


def _taker(patient: Patient, images: Tensor) -> Callable[[Tensor], object]:
    """The owner's own step, which may bring labels into form itself, or the loss."""
    trainer = None if patient.make_trainer is None else patient.make_trainer()
    if trainer is not None and has_own_step(trainer):
        return lambda labels: trainer.step(images, labels)
    patient.model.eval()
    with torch.no_grad():
        logits = patient.logits(images)
    return lambda labels: patient.loss(logits, labels)


def _refusal(take: Callable[[Tensor], object], labels: Tensor) -> str | None:
    """The first line of what is raised, which may be anything."""
    try:
        take(labels)
    except Exception as error:
        return str(error).splitlines()[0] if str(error) else type(error).__name__
    return None


def _named(labels: Tensor) -> str:
    return str(labels.dtype).removeprefix("torch.")
