"""What training minimises."""

from __future__ import annotations

import math
from typing import Literal

from vitscope.core.config import config, require


@config
class LossConfig:
    """What training minimises."""

    name: Literal["cross_entropy", "binary_cross_entropy"] = "cross_entropy"
    """One question with K answers, or K questions with yes and no."""
    smoothing: float = 0.0
    """Label smoothing s: s / K on every class, the true one included."""
    class_balance: float = 0.0
    """Weight of a class: its number of pictures to the power of minus this; 0 none, 1 every class the same in sum."""
    teacher: str | None = None
    """A run or model folder to learn from beside the labels."""
    distill: Literal["soft", "hard"] = "soft"
    """Learn the teacher's probabilities, or only its choice."""
    distill_share: float = 0.5
    """Share of the teacher in the loss. A model with a distillation token learns it through that token."""
    distill_temperature: float = 3.0
    """Softens both sides of soft distillation."""

    def __post_init__(self) -> None:
        require(0 <= self.smoothing < 1, "smoothing", "from 0, below 1", self.smoothing)
        require(0 <= self.class_balance <= 2, "class_balance", "from 0 to 2", self.class_balance)
        require(0 <= self.distill_share <= 1, "distill_share", "a share from 0 to 1", self.distill_share)
        warm = 0 < self.distill_temperature < math.inf
        require(warm, "distill_temperature", "a positive number", self.distill_temperature)
