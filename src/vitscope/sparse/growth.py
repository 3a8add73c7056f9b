"""Regularisation that grows until the doomed units are gone (RSST, after GReg: Wang et al. 2021, arXiv 2012.09243).

After update t each entry w of a doomed unit becomes w * max(0, 1 - eta * lambda(t)), apart from the learning rate;
lambda rises to `reg` at t = T and is held there; eta is such that eta * lambda adds up to 20 by then.

Optimisers that make every gradient equally long (Adam with a short memory, Muon) would hold doomed weights at the
noise of their own steps, however small the gradient: 1500 steps of AdamW with beta2 = 0.95 left max |D| at 3.5 % of the
median of what is kept, 6000 steps with beta2 = 0.999 at 0.8 %. So there is an envelope besides: no doomed weight is
larger than the law alone would have left of the largest one. While it is wide D trains as before; when it closes,
nothing of D is left, whatever the optimiser.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vitscope.core.errors import ConfigError, InputError, expected
from vitscope.core.suggest import did_you_mean
from vitscope.sparse.layout import network_of
from vitscope.sparse.masks import by_units
from vitscope.sparse.units import Units, units_of
from vitscope.train.shards import local, made_whole, own_part
from vitscope.train.state import TrainState

PULL = 20.0
"""What eta * lambda adds up to: left alone, a doomed weight is e^-20 of what it was, or 0."""

SCHEDULES: dict[str, Callable[[Tensor, float], Tensor]] = {
    "rsst": lambda x, exp: _rising_exp(x**exp),
    "linear": lambda x, exp: x,
    "quadratic": lambda x, exp: x**2,
    "cubic": lambda x, exp: x**3,
    "exponential": lambda x, exp: _rising_exp(x),
}
"""From (t / T, exp) to lambda / reg: 0 at 0 and 1 at 1."""


@dataclass(frozen=True, kw_only=True)
class Growth:
    """How lambda grows."""

    steps: int
    """T: the update at which lambda is `reg`."""
    reg: float = 1.0
    exp: float = 4.0
    """Of the schedule `rsst`: the higher, the later it bites."""
    schedule: str = "rsst"
    start: int = 0
    """The update that counts as 0."""

    def __post_init__(self) -> None:
        for name, floor in (("steps", 1), ("start", 0)):
            if getattr(self, name) < floor:
                raise ConfigError(expected(f"growth.{name}", f"{floor} or more", getattr(self, name)))
        for name in ("reg", "exp"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ConfigError(expected(f"growth.{name}", "a positive number", getattr(self, name)))
        if self.schedule not in SCHEDULES:
            raise ConfigError(
                expected("growth.schedule", f"one of {', '.join(SCHEDULES)}", repr(self.schedule)),
                fix=did_you_mean(self.schedule, SCHEDULES),
            )

    def table(self) -> Tensor:
        """lambda(t) for t = 0 ... T, float64."""
        x = torch.arange(self.steps + 1, dtype=torch.float64) / self.steps
        return self.reg * SCHEDULES[self.schedule](x, self.exp)

    @property
    def eta(self) -> float:
        return PULL / float(self.table().sum())

    def left(self) -> Tensor:
        """What the law alone leaves of a doomed weight after update t = 0 ... T, float64."""
        return (1 - self.eta * self.table()).clamp(min=0).cumprod(0)


class GrowthHook:
    """Draws doomed units to 0 while the whole network trains; `fit(..., after_step=[hook])`."""

    name = "sparse_growth"

    def __init__(self, doomed: Units, growth: Growth) -> None:
        """`doomed` says yes to the units that go: `before.without(after)`."""
        if not any(any(doomed.counts(kind)) for kind in doomed.kinds):
            raise InputError("no unit is doomed: there is nothing to regularise", fix="a higher rate, or more rounds")
        self.doomed, self.growth = doomed, growth
        self._weights: list[Tensor] = []
        self._largest: Tensor | None = None
        """|D| where it was largest, when this began."""

    def __call__(self, state: TrainState) -> None:
        if self._largest is None or not self._weights:
            self._largest = self._bind(state)
        place = (state.updates - self.growth.start).clamp(0, self.growth.steps)
        strength = self._table.take(place)
        pull = (strength * self._eta).clamp(max=1.0) * (state.skipped == 0)
        shares = torch._foreach_mul(self._marks, pull)  # pyright: ignore[reportPrivateImportUsage]
        # w - w * 0 is w to the bit, so that what is kept feels nothing; w - w * 1 is 0.
        torch._foreach_addcmul_(self._weights, self._weights, shares, value=-1.0)  # pyright: ignore[reportPrivateImportUsage]
        limits = torch._foreach_mul(self._marks, self._largest * self._left.take(place))  # pyright: ignore[reportPrivateImportUsage]
        torch._foreach_add_(limits, self._beyond)  # pyright: ignore[reportPrivateImportUsage]
        torch._foreach_clamp_max_(self._weights, limits)  # pyright: ignore[reportPrivateImportUsage]
        torch._foreach_neg_(limits)  # pyright: ignore[reportPrivateImportUsage]
        torch._foreach_clamp_min_(self._weights, limits)  # pyright: ignore[reportPrivateImportUsage]
        state.scalars["sparse/lambda"] = strength

    def state_dict(self) -> dict[str, Any]:
        """lambda goes by the engine's own count of updates. What is kept: whose units, by which law, and how large the
        largest doomed weight was (None before the first step)."""
        growth = {field: getattr(self.growth, field) for field in ("steps", "reg", "exp", "schedule", "start")}
        return {"doomed": self.doomed.to_json(), "growth": growth, "largest": self._largest}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        mine = self.state_dict()
        other = [key for key in ("doomed", "growth") if saved.get(key) != mine[key]]
        if other:
            raise InputError(
                f"the checkpoint was made with other regularised units or another growth ({', '.join(other)})",
                fix="resume with the settings the round began with",
            )
        largest = saved.get("largest")
        if self._largest is not None and largest is not None:
            self._largest.copy_(largest)
        elif largest is not None:
            self._largest = largest.clone()

    @torch.no_grad()
    def _bind(self, state: TrainState) -> Tensor:
        """Lay everything a step needs on the device; the largest doomed weight, unless it is known already."""
        wholes, marks = dict(state.model.named_parameters()), entries_of(state.model, self.doomed)
        touched = {name: mark for name, mark in marks.items() if bool(mark.any())}
        self._weights = [local(wholes[name].detach()) for name in touched]
        self._marks = [
            own_part(wholes[name], mask).to(weight.device, weight.dtype)
            for (name, mask), weight in zip(touched.items(), self._weights, strict=True)
        ]
        # What is kept has a limit that nothing reaches.
        self._beyond = [(1 - mark) * (torch.finfo(mark.dtype).max / 2) for mark in self._marks]
        self._table, self._left = (
            table.to(state.device, torch.float32) for table in (self.growth.table(), self.growth.left())
        )
        self._eta = self.growth.eta
        if self._largest is not None:
            return self._largest.to(state.device)
        largest = [
            made_whole(wholes[name].detach())[mask.to(state.device)].abs().max() for name, mask in touched.items()
        ]
        return torch.stack(largest).max().float()


@torch.no_grad()
def doomed_share(model: nn.Module, doomed: Units, removed: Units | None = None) -> float:
    """max |D| / median |kept| over all entries of units: how far from gone the doomed ones are. Units that went before
    are in neither: `removed` says yes to them."""
    tensors = network_of(model).state_dict()
    going, out = entries_of(model, doomed), entries_of(model, doomed if removed is None else doomed | removed)
    sizes = {name: tensors[name].detach().abs().cpu() for name in going}
    largest = torch.cat([size[going[name]] for name, size in sizes.items()]).max()
    return float(largest / torch.cat([size[~out[name]] for name, size in sizes.items()]).median())


def entries_of(model: nn.Module, units: Units) -> dict[str, Tensor]:
    """Of each tensor which entries belong to these units: to one of them, where rows and columns are both units'."""
    return {name: ~others for name, others in by_units(model, units_of(model).without(units)).items()}


def _rising_exp(x: Tensor) -> Tensor:
    return torch.expm1(x) / torch.expm1(torch.ones((), dtype=x.dtype))
