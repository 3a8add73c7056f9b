"""How long training lasts, on what, and when it ends early."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

from vitscope.core.config import config, require
from vitscope.train.config.metric import is_larger_better


@config
class LoopConfig:
    """How long training lasts, on what, and when it ends early."""

    synonyms: ClassVar[dict[str, str]] = {"ema": "ema_decay", "early_stopping": "early_stop"}

    epochs: int = 100
    """How many times to go through the training pictures."""
    seed: int = 0
    """Seed for initial weights, data order, augmentation and dropout. The split has its own."""
    data_seed: int | None = None
    """Seed of data order and augmentation alone; by default that of the run."""
    device: str = "auto"
    """Where to compute: auto, cpu, cuda, cuda:N or mps."""
    threads: int | None = None
    """CPU threads for arithmetic; by default as many as torch takes. A small model is as quick with 1, and beside other
    work far quicker."""
    parallel: Literal["ddp", "fsdp"] = "ddp"
    """What each of several processes holds: the whole model (ddp), or its shard of weights, gradients, optimiser and
    running mean (fsdp). One process alone holds everything."""
    micro_batch: int | None = None
    """Pictures that go through the model at once; gradients of a batch's parts add up to the whole batch's."""
    eval_batch: int | None = None
    """Pictures at once in evaluation; by default the training batch."""
    eval_every: int = 1
    """Epochs between two evaluations; the last epoch always has one."""
    log_every: int = 10
    """Steps between two looks of the host at a GPU's figures. Every step is logged; on the CPU each is looked at."""
    ema_decay: float | None = None
    """Keep a running mean of the weights, and evaluate and save that. 0.999 for thousands of steps, 0.99 for fewer."""
    ema_warmup: bool = True
    """Let the running mean follow faster at first: decay at most (1 + updates) / (10 + updates)."""
    monitor: Literal["val/accuracy", "val/loss", "train/epoch_accuracy", "train/epoch_loss"] = "val/accuracy"
    """What "best" is measured by."""
    monitor_mode: Literal["auto", "min", "max"] = "auto"
    """Whether small or large values are good; `auto`: small for a loss, large otherwise."""
    early_stop: bool = False
    """End when the monitored metric has not improved for `patience` evaluations."""
    patience: int = 7
    """Evaluations without an improvement that `early_stop` waits for."""
    min_delta: float = 0.0
    """By how much a value must be better to count as an improvement for `patience`."""
    most_bad_steps: int = 3
    """Steps in a row whose loss or gradient is not finite before going back to the last checkpoint with lr / 2."""

    def __post_init__(self) -> None:
        require(0 < self.epochs <= 1_000_000, "epochs", "from 1 to 1,000,000", self.epochs)
        require(0 <= self.seed < 2**63, "seed", "0 or more", self.seed)
        require(self.data_seed is None or 0 <= self.data_seed < 2**63, "data_seed", "0 or more", self.data_seed)
        for name in ("threads", "micro_batch", "eval_batch"):
            value = getattr(self, name)
            require(value is None or 0 < value <= 1_000_000, name, "a positive integer, or nothing", value)
        for name in ("eval_every", "log_every", "most_bad_steps", "patience"):
            require(0 < getattr(self, name) <= 1_000_000, name, "a positive integer", getattr(self, name))
        require(self.ema_decay is None or 0 < self.ema_decay < 1, "ema_decay", "between 0 and 1", self.ema_decay)
        require(0 <= self.min_delta < math.inf, "min_delta", "0 or more", self.min_delta)

    @property
    def larger_is_better(self) -> bool:
        return is_larger_better(self.monitor, self.monitor_mode)
