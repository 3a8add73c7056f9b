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
    """By the parts that do something else in evaluation."""
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

    hooks = [module.register_forward_pre_hook(look) for module in (*norms, *drops)]
    try:
        trainer.hold_lr(0.0)
        trainer.step(*step_batch(patient, trainer))
    finally:
        for hook in hooks:
            hook.remove()
    seen = Seen(measured={"parts": len(norms) + len(drops), "in_training_mode": sum(modes)})
    # BatchNorm of weights that know something may be frozen on purpose.
    if modes and not any(modes) and not (patient.facts.is_pretrained or looks_trained(patient.model)):
        seen.findings.append(Finding("trained_in_eval_mode", 0.9, {"norms": len(norms), "drops": len(drops)}))
    return seen
