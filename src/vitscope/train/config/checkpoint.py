"""Where weights come from, and how often the state is saved."""

from __future__ import annotations

from vitscope.core.config import config, require


@config
class CheckpointConfig:
    """Where weights come from, and how often the state is saved."""

    init_from: str | None = None
    """Where the weights training begins with come from (short: --from): a run, a model folder, a weights file, or a
    name on the hub. The head is made anew where the classes differ, positions are resampled where the size differs."""
    every_epochs: int = 1
    """Epochs between two checkpoints; the last epoch always has one."""
    every_steps: int | None = None
    """Steps between two checkpoints within an epoch."""
    keep: int = 2
    """How many of the newest are kept; the best is kept beside them."""

    def __post_init__(self) -> None:
        require(0 < self.every_epochs <= 1_000_000, "every_epochs", "a positive integer", self.every_epochs)
        steps = self.every_steps
        require(steps is None or 0 < steps <= 10**9, "every_steps", "a positive integer, or nothing", steps)
        require(0 < self.keep <= 10_000, "keep", "from 1 to 10,000", self.keep)
