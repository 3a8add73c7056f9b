"""One optimiser over all groups: torch's fused Adam, AdamW or SGD, or Muon beside AdamW."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from vitscope.core.errors import ConfigError, VitscopeError, expected
from vitscope.models.model import VisionModel
from vitscope.train.config.optim import OptimConfig
from vitscope.train.optim.groups import Group, parameter_groups
from vitscope.train.optim.muon import Muon
from vitscope.train.shards import copy_into, leaf, like, local


class Optimizer:
    """Moves the parameters that train. All its memory is there from the start and stays where it is, so that a step can
    be captured in a CUDA graph and a state loaded under it.

    Of a sharded model each process moves its part: every rule here is one for each number by itself, but for Muon's.
    """

    params: list[nn.Parameter]
    """What is moved: the model's parameters, or this process's part of each."""
    decayed: list[nn.Parameter]
    """Those with weight decay, which an L1 penalty is on too."""

    def __init__(self, model: VisionModel, config: OptimConfig, *, lr: float | None = None) -> None:
        """`lr` is what the schedule will be at its top, where that is not `config.lr`."""
        self.config = config
        self.lr = config.lr if lr is None else lr
        self.groups = parameter_groups(model, config)
        self._wholes = [parameter for group in self.groups for parameter in group.params]
        self.params = [leaf(parameter) for parameter in self._wholes]
        own = dict(zip(self._wholes, self.params, strict=True))
        wholes = {parameter: whole for whole, parameter in own.items()}
        self.decayed = [parameter for group in self.groups if group.decays for parameter in group.params]
        self._names = [name for group in self.groups for name in group.names]
        matrices = [group for group in self.groups if group.kind == "matrix"]
        if config.name == "muon" and not matrices:
            raise ConfigError(
                "optim.name: muon turns matrices of linear layers within blocks, and this model trains none",
                where=type(model).__name__,
                fix="--optim.name adamw",
            )

        device = self.params[0].device
        faster = 1.0 if config.muon_lr is None else config.muon_lr / self.lr
        scales = [group.lr_scale * (faster if group.kind == "matrix" else 1.0) for group in self.groups]
        self._scales = torch.tensor(scales, device=device)
        self._lrs = torch.zeros_like(self._scales)  # each group reads its entry, so one launch sets them all
        settings = [
            {
                "params": [own[parameter] for parameter in group.params],
                "lr": lr,
                "weight_decay": config.decay if group.decays else 0.0,
            }
            for group, lr in zip(self.groups, self._lrs.unbind(), strict=True)
        ]
        self._parts: list[Any] = []
        for kind in ("matrix", "rest"):
            chosen = [one for one, group in zip(settings, self.groups, strict=True) if group.kind == kind]
            if chosen:
                self._parts.append(_made(kind, chosen, config, device, wholes))
        self._allocate()

    @property
    def names(self) -> list[str]:
        """Of `params`, in their order."""
        return list(self._names)

    @torch.no_grad()
    def gradients(self) -> list[Tensor]:
        """Of whatever has one, to be changed in place before the step."""
        for parameter, whole in zip(self.params, self._wholes, strict=True):
            parameter.grad = None if whole.grad is None else local(whole.grad)
        return [parameter.grad for parameter in self.params if parameter.grad is not None]

    @torch.no_grad()
    def step(self, lr: Tensor, skipped: Tensor) -> None:
        """One update with the gradients at hand and the schedule's `lr` (0-d). Where `skipped` (0-d float32) is 1,
        parameters and state keep their bits. Neither is looked at by the host."""
        torch.mul(self._scales, lr, out=self._lrs)
        for part in self._parts:
            part.found_inf = skipped
            part.step()

    def zero_grad(self) -> None:
        for parameter in (*self.params, *self._wholes):
            parameter.grad = None

    def state_dict(self) -> dict[str, dict[str, Tensor]]:
        """The live state by parameter name; complete before the first step too."""
        return {
            name: {key: _shown(tensor, own, whole) for key, tensor in self._state(own).items()}
            for name, own, whole in zip(self._names, self.params, self._wholes, strict=True)
        }

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Copy a state into the memory this one has. A state that does not fit is refused before anything changes."""
        mine = self.state_dict()
        _require_same("parameters", mine, state)
        for name, tensors in mine.items():
            _require_same(f"keys of {name}", tensors, state[name])
            for key, tensor in tensors.items():
                given = state[name][key]
                if not isinstance(given, Tensor) or given.shape != tensor.shape:
                    received = tuple(given.shape) if isinstance(given, Tensor) else repr(given)
                    raise _misfit(expected(f"{name}, {key}", f"shape {tuple(tensor.shape)}", received))
        for name, tensors in mine.items():
            for key, tensor in tensors.items():
                copy_into(tensor, state[name][key])

    def describe(self) -> str:
        """One line for the log."""

        def count(groups: list[Group]) -> int:
            return sum(parameter.numel() for group in groups for parameter in group.params)

        free = count([group for group in self.groups if not group.decays])
        line = f"{self.config.name}: {count(self.groups):,} parameters in {len(self.groups)} groups"
        line += f", weight decay {self.config.decay:g} except for {free:,} of them"
        matrices = [group for group in self.groups if group.kind == "matrix"]
        if matrices:
            many = sum(len(group.params) for group in matrices)
            lr = self.config.muon_lr or self.lr
            line += (
                f"; Muon updates {count(matrices):,} in {many} matrices with lr {lr:g}, AdamW the rest with {self.lr:g}"
            )
        return line

    def _state(self, parameter: nn.Parameter) -> dict[str, Tensor]:
        for part in self._parts:
            if parameter in part.state:
                return part.state[parameter]
        return {}

    def _allocate(self) -> None:
        """Make all state now. torch would do it in the first step."""
        for part in self._parts:
            if isinstance(part, torch.optim.SGD):
                # By hand: a first step of torch's fused SGD that is skipped leaves its buffers unset.
                for group in part.param_groups:
                    for parameter in group["params"]:
                        if group["momentum"] != 0:
                            part.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
            elif not isinstance(part, Muon):
                for group in part.param_groups:
                    for parameter in group["params"]:
                        parameter.grad = torch.zeros_like(parameter)
                part.found_inf = torch.ones((), device=self._lrs.device)
                part.step()
        self.zero_grad()


def _shown(tensor: Tensor, own: nn.Parameter, whole: nn.Parameter) -> Tensor:
    """What is remembered of each number of a parameter is cut up as the parameter is; counts are not."""
    return like(whole, tensor) if tensor.ndim and tensor.shape == own.shape else tensor


def _made(
    kind: str,
    groups: list[dict[str, Any]],
    config: OptimConfig,
    device: torch.device,
    wholes: Mapping[nn.Parameter, nn.Parameter],
) -> torch.optim.Optimizer:
    lr = groups[0]["lr"]
    if kind == "matrix":
        return Muon(groups, lr, momentum=config.muon_momentum, wholes=wholes)
    if config.name == "sgd":
        return torch.optim.SGD(groups, lr, momentum=config.momentum, nesterov=config.nesterov, fused=True)
    cls = torch.optim.Adam if config.name == "adam" else torch.optim.AdamW
    capturable = device.type == "cuda"
    return cls(groups, lr, betas=config.betas, eps=config.eps, fused=True, capturable=capturable)


def _require_same(subject: str, mine: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    missing, extra = [key for key in mine if key not in given], [key for key in given if key not in mine]
    if missing:
        raise _misfit(f"optimiser state: {subject}: {_some(missing)} missing")
    if extra:
        raise _misfit(f"optimiser state: {subject}: {_some(extra)} unknown here")


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _misfit(what: str) -> VitscopeError:
    return VitscopeError(what, fix="resume with the model, optimiser and frozen parameters the run began with")
