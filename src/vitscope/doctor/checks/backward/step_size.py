"""How far does one step go, against the size of the weights, and how much of it is weight decay?"""

from __future__ import annotations

from statistics import median

from torch import Tensor

from vitscope.doctor.finding import Change, Finding, Note, Seen
from vitscope.doctor.one_step import StepSeen, step_batch, watch_step
from vitscope.doctor.patient import Patient
from vitscope.doctor.thresholds.backward import (
    COUPLED_DECAY_SHARE,
    DECAY_SHARE,
    DECAY_TAKEN,
    LARGE_UPDATE,
    SMALL_UPDATE,
    STEADY_STEPS,
)


def step_size(patient: Patient) -> Seen:
    """At the top of the schedule: the first steps of a warm-up say nothing about the rest."""
    if patient.make_trainer is None:
        return Seen(left_out="no_optimizer")
    trainer = patient.make_trainer()
    trainer.hold_lr(trainer.lr)
    images, labels = step_batch(patient, trainer)
    step = watch_step(patient, trainer, images, labels)
    if step is None:
        return Seen(left_out="no_update_came")
    names = _matrices(step)
    if not names:
        return Seen(left_out="no_update_came")
    ratio = _ratio(step, [name for name in names if bool(step.grads[name].any())] or names)
    decay, taken = _decay(step, names)
    seen = Seen(measured={"ratio": ratio, "decay_share": decay, "lr": trainer.lr})
    numbers = {"ratio": ratio, "lr": trainer.lr, "optimizer": trainer.optimizer_name}
    decays_too_much = decay > DECAY_SHARE if is_apart(step) else decay > COUPLED_DECAY_SHARE and taken > DECAY_TAKEN
    if decays_too_much:
        changes = (Change("optim.weight_decay", 0.05 if is_apart(step) else 5e-4),)
        given = {"decay": trainer.weight_decay, "share": decay, "lr": trainer.lr, "propose": changes[0].value}
        seen.findings.append(Finding("weight_decay_too_high", 0.88, given, changes if patient.settings else ()))
    elif ratio > LARGE_UPDATE:
        seen.findings.append(Finding("updates_too_large", 0.6, numbers))
    if ratio < SMALL_UPDATE:
        for _ in range(STEADY_STEPS):  # an optimiser of one's own may begin slowly
            step = watch_step(patient, trainer, images, labels) or step
        ratio = _ratio(step, names)
        if ratio < SMALL_UPDATE:
            seen.findings.append(Finding("updates_too_small", 0.75, numbers | {"ratio": ratio}))
        else:
            seen.notes.append(Note("slow_beginning", numbers))
    return seen


def _matrices(step: StepSeen) -> list[str]:
    """Weights that were moved and have a size of their own: biases, norms and heads of zeros have no ratio."""
    return [name for name in step.grads if step.before[name].ndim >= 2 and float(step.before[name].norm()) > 0]


def _ratio(step: StepSeen, names: list[str]) -> float:
    return median(_norm(step.update(name)) / _norm(step.before[name]) for name in names)


def _decay(step: StepSeen, names: list[str]) -> tuple[float, float]:
    """Decay's pull against the gradient's, and the share of a weight that decay takes in a step.

    Apart from the gradient (AdamW): in the median of the matrices, against the most Adam lets a gradient pull, which is
    1 for each number. Added to it (SGD, Adam): of all matrices together, since what begins at zero, a head or the last
    scale of a branch, leaves single layers without a gradient at first."""
    decay = max((float(group.get("weight_decay") or 0.0) for group in step.groups), default=0.0)
    lr = max((float(group["lr"]) / (1 - float(group.get("momentum") or 0.0)) for group in step.groups), default=0.0)
    weights = {name: step.before[name].float() for name in names}
    apart = median(_norm(weight) / weight.numel() ** 0.5 for weight in weights.values())
    together = sum(_norm(weight) ** 2 for weight in weights.values()) ** 0.5
    gradient = sum(_norm(grad) ** 2 for grad in step.grads.values()) ** 0.5
    return decay * (apart if is_apart(step) else together / max(gradient, 1e-30)), decay * lr


def is_apart(step: StepSeen) -> bool:
    """Whether decay is apart from the gradient: torch's Adam kinds say so, Muon's always is."""
    by_group = [group["decoupled_weight_decay"] for group in step.groups if "decoupled_weight_decay" in group]
    return any(by_group) or any("ns_steps" in group or "adjust_lr_fn" in group for group in step.groups)


def _norm(values: Tensor) -> float:
    return float(values.float().norm())
