"""The learning rate of every update, known before training starts; a plateau's factor comes on top as training goes."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from vitscope.core.errors import ConfigError, VitscopeError, expected
from vitscope.train.config.duration import duration_steps
from vitscope.train.config.metric import is_larger_better
from vitscope.train.config.schedule import SHORTEN, ScheduleConfig


def lr_table(config: ScheduleConfig, *, lr: float, steps_per_epoch: int, epochs: int) -> Tensor:
    """Learning rate of update n, (steps_per_epoch * epochs,) float32.

    The warm-up rises in a straight line from `warmup_lr` at update 0 to `lr` at update `warmup`. The cosine starts
    there and is at `min_lr` in the last update, unless the run ends where the cosine starts. Step decay counts epochs
    from the run's start. A constant rate and a plateau stay at `lr`.
    """
    total = steps_per_epoch * epochs
    warmup = _warmup_steps(config, steps_per_epoch=steps_per_epoch, total=total)

    # float64 throughout: differences of rates near the end of a long cosine are below float32's resolution.
    update = torch.arange(total, dtype=torch.float64)
    rise = config.warmup_lr + (lr - config.warmup_lr) * update / max(warmup, 1)
    if config.name == "cosine":
        way = ((update - warmup) / max(total - 1 - warmup, 1)).clamp(min=0.0)
        after = config.min_lr + (lr - config.min_lr) * (1 + torch.cos(math.pi * way)) / 2
    elif config.name == "step":
        after = lr * config.step_factor ** torch.floor(update / (steps_per_epoch * config.step_epochs))
    else:
        after = torch.full_like(update, lr)
    return torch.where(update < warmup, rise, after).float()


def _warmup_steps(config: ScheduleConfig, *, steps_per_epoch: int, total: int) -> int:
    warmup = duration_steps(config.warmup, steps_per_epoch=steps_per_epoch, total_steps=total)
    if warmup > total:
        raise ConfigError(
            expected("schedule.warmup", f"at most the run's {total:,} steps", f"{config.warmup!r}, {warmup:,} steps"),
            fix=SHORTEN,
        )
    return warmup


class Plateau:
    """Lowers `factor`, which the table's learning rates are multiplied by, when a metric stops getting better.

    As in torch's ReduceLROnPlateau, `plateau_patience` evaluations without an improvement are borne and the next one
    lowers. Any improvement counts, however small. The rate `lr * factor` never falls below `min_lr`.
    """

    def __init__(self, config: ScheduleConfig, *, lr: float) -> None:
        self.config = config
        self.lr = lr
        self.factor = 1.0
        self.best: float | None = None
        self.bad = 0

    def update(self, value: float) -> bool:
        """Take in an evaluation's value; True if the learning rate was just lowered. NaN is no improvement."""
        if self._improves(value):
            self.best, self.bad = value, 0
            return False
        self.bad += 1
        if self.bad <= self.config.plateau_patience:
            return False
        self.bad = 0
        before = self.factor
        self.factor = min(before, max(before * self.config.plateau_factor, self.config.min_lr / self.lr))
        return self.factor < before

    def _improves(self, value: float) -> bool:
        if not math.isfinite(value):
            return False
        if self.best is None:
            return True
        larger = is_larger_better(self.config.plateau_metric, self.config.plateau_mode)
        return value > self.best if larger else value < self.best

    def state_dict(self) -> dict[str, float | int | None]:
        return {"factor": self.factor, "best": self.best, "bad": self.bad}

    def load_state_dict(self, state: Mapping[str, float | int | None]) -> None:
        factor, bad, best = state.get("factor"), state.get("bad"), state.get("best")
        if set(state) != {"factor", "best", "bad"} or factor is None or bad is None:
            raise VitscopeError(
                expected("plateau state", "factor, best and bad", dict(state)),
                fix="resume with the schedule the run began with",
            )
        self.factor, self.bad, self.best = float(factor), int(bad), best if best is None else float(best)
