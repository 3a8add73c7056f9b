"""Does the owner's step train the model in training mode?"""

from __future__ import annotations

from typing import Any

from torch import nn

from vitscope.doctor.anatomy import looks_trained
from vitscope.doctor.finding import Finding, Seen
from vitscope.doctor.modes import drop_rates, is_batch_norm
from vitscope.doctor.one_step import step_batch
from vitscope.doctor.patient import Patient, has_own_step


def step_mode(patient: Patient) -> Seen:
    """By the parts that do something else in evaluation: in a call that begins in training mode, and in the one after
    it, which begins as the first one left the model."""
    if patient.make_trainer is None:
        return Seen(left_out="no_optimizer")
    trainer = patient.make_trainer()
    if not has_own_step(trainer):
        return Seen()  # the doctor's own steps, and the engine's, see to it
    norms = [module for module in patient.model.modules() if is_batch_norm(module)]
    drops = [module for module in patient.model.modules() if drop_rates(module)]
    modes: list[bool] = []

    def look(module: nn.Module, _given: Any) -> None:
        modes.append(module.training)

    batch = step_batch(patient, trainer)
    hooks = [module.register_forward_pre_hook(look) for module in (*norms, *drops)]
    try:
        trainer.hold_lr(0.0)
        trainer.step(*batch)
        first = modes.copy()
        modes.clear()
        trainer.hold_lr(0.0)  # a schedule may have been turned on
        if any(first) and not any(one.training for one in (*norms, *drops)):
            trainer.own_step(*batch)  # pyright: ignore[reportAttributeAccessIssue]
    finally:
        for hook in hooks:
            hook.remove()
    seen = Seen(measured={"parts": len(norms) + len(drops), "in_training_mode": sum(first)})
    numbers = {"norms": len(norms), "drops": len(drops)}
    # BatchNorm of weights that know something may be frozen on purpose.
    if first and not any(first) and not (patient.facts.is_pretrained or looks_trained(patient.model)):
        seen.findings.append(Finding("trained_in_eval_mode", 0.9, numbers))
    elif modes and not any(modes):  # but not by the step's end only
        seen.findings.append(Finding("trained_in_eval_mode", 0.85, numbers | {"call": 2}))
    return seen
