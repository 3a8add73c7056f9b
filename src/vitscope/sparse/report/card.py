"""What the card of a model says of how it was made smaller: what it was, and what is left of it."""

from __future__ import annotations

from vitscope.sparse.config import KIND_NAMES, SparseConfig
from vitscope.sparse.rows import Row


def how_it_was_made_smaller(dense: Row, last: Row, sparse: SparseConfig) -> str:
    """A part of README.md."""
    masked = " (masked: they are still there, as zeros)" if last.params == dense.params else ""
    lines = [f"{last.weights_removed:.1%} of the prunable weights are gone{masked}"]
    for kind in KIND_NAMES:
        whole, left = dense.left(kind), last.left(kind)
        if whole is not None and left is not None:
            lines.append(f"{kind}: {sum(left):,} of {sum(whole):,} are left, by block {' '.join(map(str, left))}")
    lines.append(f"parameters: {last.params:,} of {dense.params:,}; multiply-adds: {last.macs:,} of {dense.macs:,}")
    if dense.test_accuracy is not None:
        lines.append(f"the dense network it came from: {dense.test_accuracy:.2%} of the test pictures")
    began = f"`vitscope sparsify`: {sparse.algorithm}, rate {sparse.rate:g}, rounds: {last.round}, {last.epochs} epochs"
    return "\n".join([f"## How it was made smaller\n\n{began}\n", *(f"- {line}" for line in lines), ""])
