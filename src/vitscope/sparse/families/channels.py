"""A channel of a convolutional network: its filter, its BatchNorm, and what the next layer reads of it.

With filter, scale and shift at 0 a channel is exactly 0 after BatchNorm, by the statistics of the batch as by the
running ones; so those are not masked, and go only when the channel is cut out.
"""

from __future__ import annotations

from vitscope.core.errors import UsageError
from vitscope.sparse.pieces import CHANNELS, Group, Piece


def channels(block: int, count: int, *, filters: str, norm: str, reader: str) -> Group:
    """The outputs of the convolution `filters`, normalised by `norm`, read by `reader` (a convolution, or linear)."""
    pieces = (
        Piece(f"{filters}.weight", 0, count),
        Piece(f"{norm}.weight", 0, count),
        Piece(f"{norm}.bias", 0, count),
        Piece(f"{norm}.running_mean", 0, count, is_own=False),
        Piece(f"{norm}.running_var", 0, count, is_own=False),
        Piece(f"{reader}.weight", 1, count),
    )
    return Group(CHANNELS, block, count, pieces, reader)


def require_some(counts: tuple[int, ...]) -> None:
    """Without a channel nothing would come through a convolution, and no setting says such a network."""
    if 0 in counts:
        raise UsageError(
            f"group {counts.index(0)} of channels has none left, and nothing would come through",
            where="vitscope.sparse.shrink",
            fix="keep at least one channel of every convolution",
        )
