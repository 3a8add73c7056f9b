"""What a model is wanted for."""

from __future__ import annotations

from typing import Literal

from vitscope.core.config import config, require


@config
class Wishes:
    """What a model is wanted for: the question `advise` answers."""

    images: int | None = None
    """How many pictures you can train on."""
    img_size: int | None = None
    """Side of your pictures in pixels; 32 where nothing is said."""
    memory_gb: float | None = None
    """Memory of the GPU (or machine) in GB."""
    wish: Literal["balance", "speed", "accuracy", "memory", "trial"] = "balance"
    """What matters most."""

    def __post_init__(self) -> None:
        require(self.images is None or self.images > 0, "images", "a positive number", self.images)
        require(self.side >= 8, "img_size", "at least 8 pixels", self.img_size)
        require(
            self.memory_gb is None or 0 < self.memory_gb < 1e9,
            "memory_gb",
            "a positive number below 1e9",
            self.memory_gb,
        )

    @property
    def side(self) -> int:
        """The pictures' side, or what is assumed of it."""
        return 32 if self.img_size is None else self.img_size
