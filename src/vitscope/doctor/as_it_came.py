"""Gives the patient back exactly as it came: weights, gradients, modes, optimiser, torch's schedulers of its rate,
random numbers, hooks.

What an owner's own step holds besides (a scaler, a counter) cannot be seen from here.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from vitscope.core.seed import preserved_rng
from vitscope.doctor.patient import Patient
from vitscope.doctor.schedules import KeptScheduler

HOOKS = (
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_backward_hooks",
    "_backward_pre_hooks",
)


@contextlib.contextmanager
def as_it_came(patient: Patient) -> Iterator[None]:
    """Whatever happens inside, errors included."""
    kept: list[Any] = [
        _KeptModule(one) for one in (patient.model, patient.evaluated, patient.loss) if isinstance(one, nn.Module)
    ]
    if patient.optimizer is not None:
        moved = [one for group in patient.optimizer.param_groups for one in group["params"]]
        kept += [_KeptTensors(moved), _KeptOptimizer(patient.optimizer)]
    kept += [KeptScheduler(one) for one in patient.schedulers]
    generators = [generator.get_state() for generator in patient.generators]
    with preserved_rng():
        try:
            yield
        finally:
            for one in kept:
                one.put_back()
            for generator, state in zip(patient.generators, generators, strict=True):
                generator.set_state(state)


@contextlib.contextmanager
def module_as_it_came(module: nn.Module) -> Iterator[None]:
    """A module alone. One whose sizes are not known before its first pass (a lazy one) gets them, and keeps them."""
    held = (*module.parameters(), *module.buffers())
    is_lazy = any(isinstance(one, UninitializedParameter | UninitializedBuffer) for one in held)
    kept = None if is_lazy else _KeptModule(module)
    modes = [(one, one.training) for one in module.modules()]
    try:
        yield
    finally:
        if kept is not None:
            kept.put_back()
        for one, mode in modes:
            one.training = mode


class _KeptTensors:
    """By identity, so that tied weights stay tied, and gradients stay where others may look for them."""

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        self.tensors = [(one, one.detach().clone()) for one in tensors]
        self.grads = [
            (one, one.grad, None if one.grad is None else one.grad.clone(), one.requires_grad)
            for one, _ in self.tensors
            if one.is_leaf and one.is_floating_point()
        ]

    @torch.no_grad()
    def put_back(self) -> None:
        for tensor, kept in self.tensors:
            tensor.copy_(kept)
        for parameter, grad, kept, requires in self.grads:
            parameter.requires_grad_(requires)
            parameter.grad = grad if grad is None or kept is None else grad.copy_(kept)


class _KeptModule:
    """Its tensors, and which of them it holds by which name: a buffer may have been given anew."""

    def __init__(self, module: nn.Module) -> None:
        self.tensors = _KeptTensors((*module.parameters(), *module.buffers()))
        self.modes = [(one, one.training) for one in module.modules()]
        # Dicts are filled anew, not exchanged: handles of the owner's hooks point to them.
        self.dicts = [
            (held, dict(held))
            for one in module.modules()
            for name in (*HOOKS, "_parameters", "_buffers")
            if (held := getattr(one, name, None)) is not None
        ]

    def put_back(self) -> None:
        for held, kept in self.dicts:
            held.clear()
            held.update(kept)
        self.tensors.put_back()
        for one, mode in self.modes:
            one.training = mode


class _KeptOptimizer:
    """Its state and its settings, tensors in the precision they are kept in."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer
        self.has_stepped = "_opt_called" in vars(optimizer)
        """As torch's schedulers note it: they warn where they are turned on before."""
        self.state = {one: _copied(held) for one, held in optimizer.state.items()}
        self.groups = [
            _copied({key: value for key, value in group.items() if key != "params"}) for group in optimizer.param_groups
        ]

    @torch.no_grad()
    def put_back(self) -> None:
        if not self.has_stepped:
            vars(self.optimizer).pop("_opt_called", None)
        self.optimizer.state.clear()  # what the first step made was not there before
        self.optimizer.state.update({one: _given_back(held) for one, held in self.state.items()})
        del self.optimizer.param_groups[len(self.groups) :]
        for group, kept in zip(self.optimizer.param_groups, self.groups, strict=True):
            for key in [key for key in group if key != "params"]:
                del group[key]
            group.update(_given_back(kept))


def _copied(values: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Each value beside a copy of what it holds."""
    return {
        key: (value, value.detach().clone() if isinstance(value, Tensor) else copy.deepcopy(value))
        for key, value in values.items()
    }


def _given_back(kept: dict[str, tuple[Any, Any]]) -> dict[str, Any]:
    """Tensors are the same ones, holding what they held."""
    return {key: value.copy_(held) if isinstance(value, Tensor) else held for key, (value, held) in kept.items()}
