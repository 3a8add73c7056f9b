"""How far does one step go, against the size of the weights, and how much of it is weight decay?"""

from __future__ import annotations

from statistics import median

from torch import Tensor

from vitscope.doctor.finding import Change, Finding, Note, Seen
from vitscope.doctor.one_step import StepSeen, watch_step
from vitscope.doctor.patient import Patient
from vitscope.doctor.thresholds import (
    COUPLED_DECAY_SHARE,
    DECAY_SHARE,
    LARGE_UPDATE,
    SMALL_UPDATE,
    START_PICTURES,
    STEADY_STEPS,
)

DECOUPLED = ("adamw", "muon", "lion", "NAdam")


def step_size(patient: Patient) -> Seen:
    """At the top of the schedule: the first steps of a warm-up say nothing about the rest."""
    if patient.make_trainer is None:
        return Seen(left_out="no_optimizer")
    trainer = patient.make_trainer()
    trainer.hold_lr(trainer.lr)
    images, labels = patient.sample(patient.facts.batch_size or START_PICTURES)
    step = watch_step(patient, trainer, images, labels)
    if step is None:
        return Seen(left_out="no_update_came")
    names = _matrices(step)
    if not names:
        return Seen(left_out="no_update_came")
    ratio = _ratio(step, names)
    decay = _decay_share(step, names, trainer.optimizer_name.lower())
    seen = Seen(measured={"ratio": ratio, "decay_share": decay, "lr": trainer.lr})
    numbers = {"ratio": ratio, "lr": trainer.lr, "optimizer": trainer.optimizer_name}
    is_decoupled = _is_decoupled(step, trainer.optimizer_name)
    if decay > (DECAY_SHARE if is_decoupled else COUPLED_DECAY_SHARE):
        changes = (Change("optim.weight_decay", 0.05 if is_decoupled else 5e-4),)
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


def _decay_share(step: StepSeen, names: list[str], optimizer: str) -> float:
    """Decay's pull against the gradient's, in the median of the matrices. Of Adam's kind, the gradient's pull on each
    number is at most 1; of SGD's it is the gradient."""
    decays = [float(group.get("weight_decay") or 0.0) for group in step.groups]
    if not decays or max(decays) == 0:
        return 0.0
    is_adam = "ada" in optimizer or optimizer in ("muon", "lion") or any("betas" in group for group in step.groups)
    shares = []
    for name in names:
        weight = step.before[name].float()
        pull = weight.numel() ** 0.5 if is_adam and _is_decoupled(step, optimizer) else _norm(step.grads[name])
        shares.append(max(decays) * _norm(weight) / max(pull, 1e-30))
    return median(shares)


def _is_decoupled(step: StepSeen, optimizer: str) -> bool:
    by_group = [group["decoupled_weight_decay"] for group in step.groups if "decoupled_weight_decay" in group]
    return any(by_group) or optimizer.lower() in DECOUPLED


def _norm(values: Tensor) -> float:
    return float(values.float().norm())
