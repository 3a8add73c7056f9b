"""One optimiser that turns the hidden matrices by Muon and moves the rest by Adam, as people write it (Jordan 2024)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from vitscope.train.optim.muon import orthogonalise


class MuonWithAdam(torch.optim.Optimizer):
    """Both with the same learning rate: Muon's step is scaled to the size of Adam's."""

    def __init__(self, parameters: Iterable[nn.Parameter], lr: float = 1e-3, weight_decay: float = 0.0) -> None:
        every = list(parameters)
        matrices = [one for one in every if one.ndim == 2 and min(one.shape) > 16]
        held = {id(one) for one in matrices}
        groups = [
            {"params": matrices, "is_muon": True},
            {"params": [one for one in every if id(one) not in held], "is_muon": False},
        ]
        super().__init__([group for group in groups if group["params"]], {"lr": lr, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.mul_(1 - group["lr"] * group["weight_decay"])
                    (self._turn if group["is_muon"] else self._adam)(parameter, parameter.grad, group["lr"])

    def _turn(self, parameter: nn.Parameter, grad: torch.Tensor, lr: float) -> None:
        state = self.state[parameter]
        momentum = state.setdefault("momentum", torch.zeros_like(parameter))
        momentum.lerp_(grad, 0.05)
        direction = orthogonalise(grad.lerp(momentum, 0.95)[None])[0]
        parameter.sub_(direction.to(parameter.dtype), alpha=lr * 0.2 * max(parameter.shape) ** 0.5)

    def _adam(self, parameter: nn.Parameter, grad: torch.Tensor, lr: float) -> None:
        state = self.state[parameter]
        if not state:
            state.update(step=0, first=torch.zeros_like(parameter), second=torch.zeros_like(parameter))
        state["step"] += 1
        first, second = state["first"].lerp_(grad, 0.1), state["second"].lerp_(grad.square(), 0.001)
        size = (second / (1 - 0.999 ** state["step"])).sqrt_().add_(1e-8)
        parameter.addcdiv_(first, size, value=-lr / (1 - 0.9 ** state["step"]))
