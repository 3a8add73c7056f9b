"""A torch optimiser, or a step of one's own, as a trainer."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from vitscope.doctor.finding import LeftOutError
from vitscope.doctor.patient import Loss, as_logits

NAMES = {"Adam": "adam", "AdamW": "adamw", "SGD": "sgd", "Muon": "muon"}


class TorchTrainer:
    """Groups keep their ratio of learning rates, whichever is held."""

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        optimizer: torch.optim.Optimizer,
        *,
        step: Callable[[Tensor, Tensor], Any] | None = None,
        clip_norm: float | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        self.model, self.loss, self.optimizer = model, loss, optimizer
        self.own_step, self.clip_norm, self.dtype = step, clip_norm, dtype
        self.optimizer_name = NAMES.get(type(optimizer).__name__, type(optimizer).__name__)
        groups = optimizer.param_groups
        self.rates = [_top(group) for group in groups]
        self.lr = max(self.rates)
        self.weight_decay = max(float(group.get("weight_decay", 0.0)) for group in groups)
        # A group at rate 0 beside others that learn is not moved.
        moving = [group for group, rate in zip(groups, self.rates, strict=True) if rate > 0 or self.lr == 0]
        held = {id(parameter) for group in moving for parameter in group["params"]}
        self.moved = frozenset(name for name, parameter in model.named_parameters() if id(parameter) in held)
        self.parameters = [parameter for group in groups for parameter in group["params"]]

    def hold_lr(self, lr: float | None) -> None:
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            if lr is None:
                group["lr"] = rate
            else:  # of rates that are all zero there is no ratio to keep
                group["lr"] = rate * (lr / self.lr) if self.lr > 0 else lr

    def relax(self, *, decay: bool = False, clip: bool = False) -> None:
        for group in self.optimizer.param_groups if decay else ():
            group["weight_decay"] = 0.0
        self.clip_norm = None if clip else self.clip_norm

    def step(self, images: Tensor, labels: Tensor) -> float:
        self.model.train()
        if self.own_step is not None:
            return _as_float(self.own_step(images, labels))
        if wants_closure(self.optimizer):
            raise LeftOutError("step_wants_closure")
        self.optimizer.zero_grad(set_to_none=True)
        with self._autocast(images.device):
            loss = self.loss(as_logits(self.model(images)), labels)
        loss.backward()
        if self.clip_norm is not None:
            nn.utils.clip_grad_norm_(self.parameters, self.clip_norm)
        self.optimizer.step()
        return float(loss.detach())

    def _autocast(self, device: torch.device) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext() if self.dtype is None else torch.autocast(device.type, self.dtype)


def wants_closure(optimizer: torch.optim.Optimizer) -> bool:
    """Whether it takes the loss several times within a step, as LBFGS does: no step of ours is its owner's then."""
    given = inspect.signature(type(optimizer).step).parameters.get("closure")
    return given is not None and given.default is inspect.Parameter.empty


def _top(group: dict[str, Any]) -> float:
    """The rate at the top of the schedule, as torch's schedulers note it; where there is none, the rate itself."""
    return float(group.get("max_lr", group.get("initial_lr", group["lr"])))


def _as_float(given: Any) -> float:
    """A step that says nothing, or something else than a number, gives none."""
    if isinstance(given, dict):
        given = given.get("loss")
    if isinstance(given, Tensor):
        given = given.detach().item() if given.numel() == 1 else None
    return float(given) if isinstance(given, int | float) else float("nan")
