"""Are the gradients of all calls there, where a step collects them over several?

All calls of a cycle but the last are given the same pictures with one label for all, which turns the gradient: the
optimiser must get the mean of both. Where it gets that of the last call alone, the others were thrown away.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_pre_hook

from vitscope.doctor.finding import Finding, Seen
from vitscope.doctor.one_step import cosine_of, mean_gradient, watch_step
from vitscope.doctor.patient import Patient, Trainer
from vitscope.doctor.thresholds.backward import ALONE, PLAINLY_ANOTHER


def collected(
    patient: Patient, trainer: Trainer, images: Tensor, labels: Tensor, mean: dict[str, Tensor], calls: int
) -> Seen:
    """Of a step that begins a cycle of `calls`; `mean` is the gradient of the batch with its own labels."""
    seen = Seen(measured={"calls": calls})
    others = ((labels[:1] + 1) % patient.num_classes).expand_as(labels)
    other = mean_gradient(patient, images, others)
    together = {name: (mean[name] + (calls - 1) * other[name]) / calls for name in mean if name in other}
    if not together or not _only_collect(patient, trainer, images, others, calls - 1, max(mean, key=_length(mean))):
        return seen
    last = watch_step(patient, trainer, images, labels)
    names = [] if last is None or last.calls > 1 else [name for name in together if name in last.grads]
    if last is None or not names:
        return seen
    alone, whole = cosine_of(last.grads, mean, names), cosine_of(last.grads, together, names)
    seen.measured |= {"alone": alone, "together": whole}
    if alone > ALONE and whole < PLAINLY_ANOTHER:
        numbers = {"calls": calls, "lost": calls - 1, "alone": alone, "together": whole}
        seen.findings.append(Finding("accumulation_forgets", 0.93, numbers))
    return seen


def _length(grads: dict[str, Tensor]) -> Callable[[str], float]:
    return lambda name: float(grads[name].norm())


def _only_collect(patient: Patient, trainer: Trainer, images: Tensor, labels: Tensor, calls: int, reached: str) -> bool:
    """Takes so many calls; whether each came to a gradient (at the parameter `reached`) and none to an update. Else
    pictures are collected, or batches passed over, or the update that was seen late had overflowed in fp16."""
    gradients, updates = [0], [0]

    def came(_grad: Tensor) -> None:
        gradients[0] += 1

    def stepped(*_: Any) -> None:
        updates[0] += 1

    hooks = [dict(patient.model.named_parameters())[reached].register_hook(came)]
    hooks.append(register_optimizer_step_pre_hook(stepped))
    try:
        for _ in range(calls):
            before = gradients[0]
            trainer.hold_lr(0.0)  # a schedule may have been turned on
            trainer.step(images, labels)
            if gradients[0] == before or updates[0]:
                return False
    finally:
        for hook in hooks:
            hook.remove()
    return True
