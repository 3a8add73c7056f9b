"""Settings of the sets that need no files. Written after the name: `shapes:size=64,count=2000`."""

from __future__ import annotations

from vitscope.core.config import config, require

LARGEST_SIDE = 4096
LARGEST_COUNT = 100_000_000


@config
class DigitsConfig:
    """scikit-learn's 1,797 handwritten digits, 8 x 8 pixels of 16 greys (a part of the UCI set)."""


@config
class ShapesConfig:
    """Rendered shapes: what is asked for is the form; place, size, angle, colour and clutter vary."""

    size: int = 32
    """Side of the pictures in pixels."""
    count: int = 10_000
    """Pictures in all."""
    classes: int = 10
    """How many of the forms are used."""
    seed: int = 0
    """Another seed gives other pictures."""

    def __post_init__(self) -> None:
        require(8 <= self.size <= LARGEST_SIDE, "size", f"from 8 to {LARGEST_SIDE} pixels", self.size)
        require(2 <= self.classes <= 10, "classes", "from 2 to 10", self.classes)
        least = 10 * self.classes
        require(least <= self.count <= LARGEST_COUNT, "count", f"from {least:,} (10 per class)", self.count)
        require(self.seed >= 0, "seed", "0 or more", self.seed)


@config
class SyntheticConfig:
    """Noise with a label in its brightness, for measuring speed. Nothing is stored: any count costs nothing."""

    size: int = 32
    """Side of the pictures in pixels."""
    count: int = 50_000
    """Pictures in all."""
    classes: int = 10
    """How many labels there are."""
    channels: int = 3
    """1 (grey) or 3 (RGB)."""
    seed: int = 0
    """Another seed gives other noise."""

    def __post_init__(self) -> None:
        require(1 <= self.size <= LARGEST_SIDE, "size", f"from 1 to {LARGEST_SIDE} pixels", self.size)
        require(2 <= self.classes <= 1_000_000, "classes", "from 2 to 1,000,000", self.classes)
        least = 10 * self.classes
        require(least <= self.count <= LARGEST_COUNT, "count", f"from {least:,} (10 per class)", self.count)
        require(self.channels in (1, 3), "channels", "1 or 3", self.channels)
        require(self.seed >= 0, "seed", "0 or more", self.seed)
