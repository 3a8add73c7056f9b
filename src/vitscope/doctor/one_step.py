"""One step of the patient's own trainer, watched: the gradients its optimiser was given, how far the weights went."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_pre_hook

from vitscope.doctor.finding import LeftOutError
from vitscope.doctor.patient import Pair, Patient, Trainer, has_own_step
from vitscope.doctor.thresholds.backward import STEP_PICTURES

PATIENCE = 16
"""Calls of the owner's step until an update comes: it may collect gradients, or skip steps that overflow in fp16."""


EMPTY_STEPS = 2
"""Calls in which the optimiser steps and no parameter has a gradient; then none will."""


class EmptyStepError(LeftOutError):
    """The owner's step moves nothing: its optimiser is called when there are no gradients."""

    def __init__(self) -> None:
        super().__init__("no_update_came")


@dataclass(frozen=True)
class StepSeen:
    """Everything by the parameter's name."""

    grads: dict[str, Tensor]
    """As the optimiser had them."""
    before: dict[str, Tensor]
    after: dict[str, Tensor]
    calls: int
    """Of the owner's step, until the update."""
    groups: list[dict[str, Any]]
    """The optimiser's settings for each of its groups, without the parameters."""

    def update(self, name: str) -> Tensor:
        return self.after[name] - self.before[name]


@torch.no_grad()
def watch_step(
    patient: Patient,
    trainer: Trainer,
    images: Tensor,
    labels: Tensor,
    *,
    change: Callable[[dict[str, Any]], None] | None = None,
) -> StepSeen | None:
    """None where no update came, or only such that are not finite. `change` alters a group's settings for the step."""
    empty = [0]
    names = {id(parameter): name for name, parameter in patient.model.named_parameters()}
    grads: dict[str, Tensor] = {}
    groups: list[dict[str, Any]] = []

    def hook(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        scale = getattr(optimizer, "grad_scale", None)
        empty[0] += all(one.grad is None for group in optimizer.param_groups for one in group["params"])
        for group in optimizer.param_groups:
            groups.append({key: value for key, value in group.items() if key != "params"})
            if change is not None:
                change(group)
            for parameter in group["params"]:
                name = names.get(id(parameter))
                if name is not None and parameter.grad is not None:
                    grad = parameter.grad.detach().clone()
                    grads[name] = grad if scale is None else grad / scale

    handle = register_optimizer_step_pre_hook(hook)
    try:
        for calls in range(1, PATIENCE + 1):
            grads.clear()
            groups.clear()
            before = {name: one.detach().clone() for name, one in patient.model.named_parameters()}
            with torch.enable_grad():
                trainer.step(images, labels)
            if grads and all(bool(torch.isfinite(grad).all()) for grad in grads.values()):
                after = {name: one.detach().clone() for name, one in patient.model.named_parameters()}
                return StepSeen(dict(grads), before, after, calls, list(groups))
            if not grads and empty[0] >= EMPTY_STEPS:
                raise EmptyStepError
    finally:
        handle.remove()
    return None


def step_batch(patient: Patient, trainer: Trainer) -> Pair:
    """What a step is watched on: of a step of the owner's a whole batch, since it may cut it into parts, else less."""
    whole = patient.facts.batch_size or STEP_PICTURES
    return patient.sample(whole if has_own_step(trainer) else min(whole, STEP_PICTURES))


def mean_gradient(patient: Patient, images: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Of the loss on the whole batch, at the precision of the weights, in the modes the modules have."""
    patient.model.zero_grad(set_to_none=True)
    patient.loss(patient.logits(images), labels).backward()
    grads = {name: one.grad.detach().clone() for name, one in patient.model.named_parameters() if one.grad is not None}
    patient.model.zero_grad(set_to_none=True)
    return grads


def cosine_of(one: dict[str, Tensor], other: dict[str, Tensor], names: Collection[str]) -> float:
    """Of the angle between two gradients, all of these parameters together."""
    product = sum(float((one[name].float() * other[name].float()).sum()) for name in names)
    return product / max(length_of(one, names) * length_of(other, names), 1e-30)


def length_of(grads: dict[str, Tensor], names: Collection[str]) -> float:
    return math.sqrt(sum(float(grads[name].float().pow(2).sum()) for name in names))
