"""Gives the patient back exactly as it came: weights, gradients, modes, optimiser, random numbers, hooks."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from vitscope.core.seed import preserved_rng
from vitscope.doctor.patient import Patient


@contextlib.contextmanager
def as_it_came(patient: Patient) -> Iterator[None]:
    """Whatever happens inside, errors included."""
    modules = [patient.model] + ([patient.evaluated] if patient.evaluated is not None else [])
    kept = [_Kept(module) for module in modules]
    optimizer = copy.deepcopy(patient.optimizer.state_dict()) if patient.optimizer is not None else None
    generators = [generator.get_state() for generator in patient.generators]
    with preserved_rng():
        try:
            yield
        finally:
            for one in kept:
                one.put_back()
            if patient.optimizer is not None and optimizer is not None:
                _put_back_optimizer(patient.optimizer, optimizer)
            for generator, state in zip(patient.generators, generators, strict=True):
                generator.set_state(state)


class _Kept:
    """One module's tensors by identity, so that tied weights stay tied and buffers that are not saved count too."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.tensors: list[tuple[Tensor, Tensor]] = [
            (tensor, tensor.detach().clone()) for tensor in (*module.parameters(), *module.buffers())
        ]
        self.grads = [
            (parameter, None if parameter.grad is None else parameter.grad.clone(), parameter.requires_grad)
            for parameter in module.parameters()
        ]
        self.modes = [(one, one.training) for one in module.modules()]
        self.hooks = [
            (one, one._forward_hooks.copy(), one._forward_pre_hooks.copy(), one._backward_hooks.copy())
            for one in module.modules()
        ]

    @torch.no_grad()
    def put_back(self) -> None:
        for tensor, kept in self.tensors:
            tensor.copy_(kept)
        for parameter, grad, requires in self.grads:
            parameter.requires_grad_(requires)
            parameter.grad = grad
        for one, mode in self.modes:
            one.training = mode
        for one, forward, before, backward in self.hooks:
            one._forward_hooks, one._forward_pre_hooks, one._backward_hooks = forward, before, backward


def _put_back_optimizer(optimizer: torch.optim.Optimizer, kept: dict[str, Any]) -> None:
    optimizer.state.clear()  # what the first step made was not there before
    optimizer.load_state_dict(kept)
