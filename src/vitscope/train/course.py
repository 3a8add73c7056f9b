"""Where a run stands, in plain numbers: what the host knows and a checkpoint must hold beside the tensors."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from vitscope.core.errors import VitscopeError, expected
from vitscope.train.config import LoopConfig


@dataclass
class Course:
    """Counts epochs from 0; `batch` is the number, within the epoch, of the batch that comes next."""

    epoch: int = 0
    batch: int = 0
    is_over: bool = False
    """Whether training has ended, early or not."""
    eval_batch: int | None = None
    """Pictures at once in evaluation, where fewer fitted than the settings ask for."""

    best: float | None = None
    """The best value of the monitored metric, however small its lead."""
    best_step: int | None = None
    best_epoch: int | None = None
    reference: float | None = None
    """The value that was last better by `min_delta`: patience counts from there."""
    waited: int = 0
    """Evaluations since then."""

    first_loss: float | None = None
    skipped_steps: int = 0
    bad_in_a_row: int = 0
    high_in_a_row: int = 0
    trouble_since: int | None = None
    """The first of the steps that go wrong now."""
    went_back: int = 0
    """How often training went back to an earlier checkpoint."""

    loss_sum: float = 0.0
    accuracy_sum: float = 0.0
    steps_counted: int = 0
    """Finite steps of this epoch so far, and the sums over them."""
    train_seconds: float = 0.0
    """Spent on this epoch's steps."""
    pictures: int = 0
    """Trained on in this epoch so far."""

    def count(self, row: dict[str, Any]) -> None:
        """A step's row goes into the epoch's means, unless it is not finite."""
        if math.isfinite(row["train/loss"]):
            self.loss_sum += row["train/loss"]
            self.accuracy_sum += row["train/accuracy"]
            self.steps_counted += 1

    def epoch_means(self) -> dict[str, float]:
        count = self.steps_counted
        speed = self.pictures / self.train_seconds if self.train_seconds else math.nan
        return {
            "train/epoch_loss": self.loss_sum / count if count else math.nan,
            "train/epoch_accuracy": self.accuracy_sum / count if count else math.nan,
            "train/images_per_s": speed,
        }

    def next_epoch(self) -> None:
        self.epoch, self.batch = self.epoch + 1, 0
        self.loss_sum = self.accuracy_sum = self.train_seconds = 0.0
        self.steps_counted = self.pictures = 0

    def judge(self, value: float, *, step: int, larger_is_better: bool, min_delta: float) -> bool:
        """Take an evaluation's value into account; whether it is the best so far. A flat curve waits, so it ends."""
        sign = 1.0 if larger_is_better else -1.0

        def beats(old: float | None, lead: float) -> bool:
            return math.isfinite(value) and (old is None or sign * (value - old) > lead)

        if beats(self.reference, min_delta):
            self.reference, self.waited = value, 0
        else:
            self.waited += 1
        is_best = beats(self.best, 0.0)
        if is_best:
            self.best, self.best_step, self.best_epoch = value, step, self.epoch
        return is_best

    def has_waited(self, loop: LoopConfig) -> bool:
        """Whether early stopping has seen enough evaluations without a better one."""
        return loop.early_stop and self.waited >= loop.patience

    @property
    def is_in_trouble(self) -> bool:
        """Whether the last step was one of those that, in a row, end in going back."""
        return self.bad_in_a_row > 0 or self.high_in_a_row > 0

    @property
    def best_so_far(self) -> tuple[float | None, int | None, int | None]:
        """The best value, its step and epoch."""
        return self.best, self.best_step, self.best_epoch

    @best_so_far.setter
    def best_so_far(self, value: tuple[float | None, int | None, int | None]) -> None:
        self.best, self.best_step, self.best_epoch = value

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def load(self, data: dict[str, Any]) -> None:
        """Take another course's place."""
        names = {field.name for field in dataclasses.fields(self)}
        if set(data) != names:
            raise VitscopeError(
                expected("the course of a checkpoint", sorted(names), sorted(data)),
                fix="continue with the vitscope that wrote it, or begin a new run with its weights: --from RUN",
            )
        for name, value in data.items():
            setattr(self, name, value)
