"""How many units an unstructured mask is worth (Refill, Chen et al. 2022, arXiv 2202.04736; Refill+ with a fillback).

Of H units in a group whose entries survive to a share d, round(d H + fillback (H - d H)) are kept whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction

from torch import Tensor

from vitscope.core.errors import InputError
from vitscope.sparse.choose import Rank
from vitscope.sparse.pieces import Group
from vitscope.sparse.units import as_written


def keep_count(survivors: int, entries: int, count: int, *, fillback: float = 0.0) -> int:
    """Of `count` units, where `survivors` of all their `entries` are left; halves are rounded up, at least 1.

    >>> [keep_count(512, 1000, 12, fillback=share) for share in (0.0, 0.2, 1.0)]
    [6, 7, 12]
    """
    whole = Fraction(survivors, entries) * count
    filled = whole + as_written(fillback, "fillback") * (count - whole)
    return max(1, int(filled + Fraction(1, 2)))


def gone_by_masks(
    groups: Iterable[Group], masks: Mapping[str, Tensor], *, fillback: float = 0.0, rank: Rank = "layer"
) -> dict[str, int | list[int]]:
    """Of each kind how many units are gone, as `choose` takes it: of each block, or (`global`) of all together, where
    the units of all blocks are one group."""
    counted: dict[str, list[tuple[int, int, int]]] = {}
    for group in groups:
        if group.count == 0:
            counted.setdefault(group.kind, []).append((0, 0, 0))
            continue
        found = [masks[piece.name] for piece in group.own if piece.name in masks]
        if not found:
            raise InputError(
                f"no mask says anything of the {group.kind} of block {group.block}",
                fix="give masks over all prunable tensors: all_kept(model)",
            )
        survivors, entries = sum(int(mask.sum()) for mask in found), sum(mask.numel() for mask in found)
        counted.setdefault(group.kind, []).append((survivors, entries, group.count))

    def lost(survivors: int, entries: int, count: int) -> int:
        return count - keep_count(survivors, entries, count, fillback=fillback) if count else 0

    if rank == "layer":
        return {kind: [lost(*counts) for counts in blocks] for kind, blocks in counted.items()}
    return {kind: lost(*map(sum, zip(*blocks, strict=True))) for kind, blocks in counted.items()}
