"""How the learning rate changes, step by step."""

from __future__ import annotations

import math
from typing import Literal

from vitscope.core.config import config, require
from vitscope.train.config.duration import duration_parts, require_duration

SHORTEN = "shorten it (--schedule.warmup '10 %') or train for more epochs (--epochs)"


@config
class ScheduleConfig:
    """How the learning rate changes, step by step."""

    name: Literal["cosine", "step", "plateau", "constant"] = "cosine"
    """How the learning rate goes on after the warm-up: along a cosine to `min_lr`; by `step_factor` every
    `step_epochs`; by `plateau_factor` whenever the watched metric stops getting better; not at all."""
    warmup: str = "10 %"
    """Linear rise at the beginning: '500 steps', '5 epochs' or '10 %' of the run; '0 steps' for none."""
    warmup_lr: float = 1e-6
    """Where the rise begins: the learning rate of the first step."""
    min_lr: float = 1e-6
    """Where the cosine ends, and the least a plateau leaves."""
    step_epochs: int = 30
    """Epochs between two steps down."""
    step_factor: float = 0.1
    """What a step down multiplies the learning rate by."""
    plateau_metric: Literal["val/loss", "val/accuracy", "train/epoch_loss", "train/epoch_accuracy"] = "val/loss"
    """What a plateau is looked for in; read after each evaluation."""
    plateau_mode: Literal["auto", "min", "max"] = "auto"
    """Whether small or large values are good; `auto`: small for a loss, large otherwise."""
    plateau_factor: float = 0.5
    """What a plateau multiplies the learning rate by."""
    plateau_patience: int = 5
    """Evaluations without an improvement that make a plateau."""

    def __post_init__(self) -> None:
        require_duration("warmup", self.warmup)
        require(0 < self.warmup_lr < math.inf, "warmup_lr", "a positive number", self.warmup_lr)
        require(0 <= self.min_lr < math.inf, "min_lr", "0 or more", self.min_lr)
        require(self.step_epochs > 0, "step_epochs", "a positive number of epochs", self.step_epochs)
        for name in ("step_factor", "plateau_factor"):
            require(0 < getattr(self, name) < 1, name, "a factor between 0 and 1", getattr(self, name))
        require(self.plateau_patience >= 0, "plateau_patience", "0 or more evaluations", self.plateau_patience)

    def require_room(self, *, lr: float, epochs: int) -> None:
        """A rise that falls, a decay that rises and a warm-up longer than the run are mistakes, not schedules. Whether
        a warm-up in steps is too long is known only to who counts them: `lr_table`."""
        length, unit = duration_parts(self.warmup)
        require(
            unit != "epochs" or length <= epochs,
            "schedule.warmup",
            f"at most the run's {epochs:,} epoch{'s' * (epochs > 1)}",
            repr(self.warmup),
            fix=SHORTEN,
        )
        bounds = {"warmup_lr": length > 0, "min_lr": self.name in ("cosine", "plateau")}
        for name, is_used in bounds.items():
            require(
                not is_used or getattr(self, name) <= lr,
                f"schedule.{name}",
                f"at most the learning rate, {lr:g}",
                f"{getattr(self, name):g}",
                fix=f"--schedule.{name.replace('_', '-')} {lr / 100:g}",
            )
