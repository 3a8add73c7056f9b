"""Does the owner's evaluation put the model into evaluation mode?"""

from __future__ import annotations

from typing import Any

from torch import nn

from vitscope.doctor.finding import Finding, Note, Seen
from vitscope.doctor.modes import drop_rates, is_batch_norm
from vitscope.doctor.patient import Patient


class _SeenEnough(BaseException):
    """Ends the evaluation after its first batch. Not an Exception: the owner's `except Exception` is not meant."""


def evaluation(patient: Patient) -> Seen:
    if patient.evaluate is None:
        return Seen(left_out="no_evaluation")
    model = patient.evaluated if patient.evaluated is not None else patient.model
    modes: dict[str, bool] = {}
    hooks: list[Any] = []

    def note(name: str) -> Any:
        def hook(module: nn.Module, *_: Any) -> None:
            modes[name] = module.training

        return hook

    def stop(*_: Any) -> None:
        raise _SeenEnough

    model.train()  # as it is after an epoch of training
    try:
        hooks += [module.register_forward_pre_hook(note(name)) for name, module in model.named_modules()]
        hooks.append(model.register_forward_hook(stop))
        patient.evaluate()
    except _SeenEnough:
        pass
    finally:
        for hook in hooks:
            hook.remove()
    if not modes:
        return Seen(left_out="evaluation_uses_another_model")
    modules = dict(model.named_modules())
    training = [name for name, is_training in modes.items() if is_training]
    drops = [name for name in training if drop_rates(modules[name])]
    norms = [name for name in training if is_batch_norm(modules[name])]
    seen = Seen(measured={"modules": len(modes), "training": len(training)})
    if drops or norms:
        numbers = {"drops": len(drops), "norms": len(norms), "names": ", ".join((drops + norms)[:3])}
        seen.findings.append(Finding("evaluated_in_train_mode", 0.96, numbers))
    elif training:
        seen.notes.append(Note("train_mode_without_harm", {"modules": len(training)}))
    return seen
