"""The tuning guide's tables as data: what people set for how many pictures, and which shapes of networks work.

A departure from them is worth a word and never a fault: where the guide and a measurement disagree, the measurement is
right. Imports neither torch nor numpy.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Span = tuple[float, float]
"""Least and largest, both included."""
Kind = Literal["overfit test", "small", "medium", "large"]


class Row(NamedTuple):
    """What the guide sets for a data set of a size."""

    kind: Kind
    most_pictures: float
    lr: Span
    """For Adam and AdamW; SGD needs about SGD_FACTOR times as much."""
    weight_decay: Span
    drop_rate: Span
    drop_path_rate: Span
    augment: str
    """A named strength of `data.config.augment`."""


OVERFIT = Row("overfit test", 32, (5e-3, 1e-2), (0.0, 0.0), (0.0, 0.0), (0.0, 0.0), "none")
BY_PICTURES: tuple[Row, ...] = (
    Row("small", 10_000, (1e-4, 5e-4), (1e-3, 5e-3), (0.3, 0.5), (0.2, 0.3), "strong"),
    Row("medium", 100_000, (3e-4, 1e-3), (1e-4, 1e-3), (0.1, 0.3), (0.1, 0.2), "medium"),
    Row("large", float("inf"), (1e-3, 5e-3), (1e-5, 1e-4), (0.0, 0.1), (0.0, 0.1), "basic"),
)

WIDTHS: dict[str, tuple[int, int]] = {"tiny": (64, 128), "small": (256, 384), "base": (512, 768), "large": (1024, 1024)}
"""Size -> embed_dim."""
HEADS: dict[int, tuple[int, ...]] = {128: (4, 8), 256: (4, 8), 512: (8,), 768: (12,), 1024: (16,)}
"""embed_dim -> num_heads."""
HEAD_DIM: Span = (32, 64)
HEAD_DIM_UNDER_PROTEST = 16
MLP_WIDTHS: dict[int, int] = {128: 512, 256: 1024, 512: 2048, 768: 3072}
"""embed_dim -> width of the feed-forward layer."""
MLP_RATIO: Span = (2, 4)
DEPTHS: dict[str, Span] = {"quick trials": (2, 4), "standard": (6, 8), "base": (12, 12), "large": (24, float("inf"))}
PATCHES_AT_32: dict[int, str] = {4: "best", 8: "quick", 16: "too coarse"}
"""Patch size on 32 x 32 pictures -> the guide's word: 64, 16 and 4 patches."""
PATCHES_AT_224: dict[int, int] = {16: 196, 32: 49}
"""Patch size -> patches."""

BASE_CONFIGS: dict[str, tuple[int, int]] = {"small": (128, 4), "medium": (256, 6), "large": (512, 12)}
"""Data size -> embed_dim and depth to begin with."""
SGD_FACTOR = 10.0
START_LR = 1e-3
LR_LADDER = (1e-2, 5e-3, 1e-3, 5e-4, 1e-4)
BATCH_BY_MEMORY_GB: dict[int, tuple[int, int]] = {4: (32, 64), 8: (64, 128), 16: (128, 256)}


class Habit(NamedTuple):
    """A way of training that is known to work."""

    optimizer: str
    lr: float
    weight_decay: float | None
    batch_size: int
    epochs: int | None


PRETRAINING = Habit("adamw", 1e-3, 0.1, 4096, None)
FINE_TUNING: dict[str, Habit] = {
    "adamw": Habit("adamw", 3e-5, 0.01, 32, 10),
    "sgd": Habit("sgd", 3e-3, None, 512, 20),
}
"""Optimiser -> habit: an lr that suits one is far off for another."""


def row_for(pictures: int) -> Row:
    """What the guide sets for so many training pictures."""
    return next(row for row in BY_PICTURES if pictures < row.most_pictures or row.most_pictures == float("inf"))
