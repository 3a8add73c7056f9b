"""Which units go: the lowest scores, in each block by itself (`layer`) or over all blocks (`global`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor

from vitscope.core.errors import ConfigError, InputError, expected
from vitscope.sparse.pieces import CHANNELS, HEADS, NEURONS
from vitscope.sparse.units import Units, removed_after

Scores = Mapping[str, Sequence[Tensor]]
"""Of each kind one tensor (count,) a block. The higher, the sooner it is kept. Removed units have any finite score."""
Gone = Mapping[str, int | Sequence[int]]
"""Of each kind how many original units are to be gone: over all blocks, or of each."""
Rank = Literal["layer", "global"]
LEAST: dict[str, int] = {HEADS: 1, NEURONS: 1, CHANNELS: 1}
"""What stays in every block, unless something else is asked for."""
MAY_BE_EMPTY = {HEADS: 0, NEURONS: 0}
"""A residual stream goes past a block without them; through convolutions without channels nothing would come."""
ROUNDED = (NEURONS, CHANNELS)


def gone_after(
    units: Units, *, rate: float, rounds: int, rank: Rank = "global", kinds: Sequence[str] | None = None
) -> dict[str, int | tuple[int, ...]]:
    """What the schedule takes in `rounds` rounds: (1 - rate)^rounds of the original units stay; of all kinds,
    where none is named."""
    if rank not in ("layer", "global"):
        raise ConfigError(expected("rank", "'layer' or 'global'", repr(rank)))
    gone: dict[str, int | tuple[int, ...]] = {}
    for kind in units.kinds if kinds is None else kinds:
        totals = units.totals(kind)
        if rank == "global":
            gone[kind] = removed_after(sum(totals), rate, rounds)
        else:
            gone[kind] = tuple(removed_after(total, rate, rounds) for total in totals)
    return gone


def choose(
    units: Units,
    scores: Scores,
    gone: Gone,
    *,
    least: Mapping[str, int] | None = None,
    round_to: int = 1,
    allow_empty: bool = False,
) -> Units:
    """`units` without those of the lowest scores, until as many as `gone` says are gone of the original ones.

    Fewer go where `least` must stay in a block (no head and no neuron must, where `allow_empty`), and where neurons and
    channels of a block are kept to a multiple of `round_to`: kept counts are rounded up. Equal scores: the lower number
    within a block goes first, then the lower block, so that ties spread over the blocks.
    """
    if round_to < 1:
        raise ConfigError(expected("round_to", "1 or more", round_to))
    stays: dict[str, int] = {**LEAST, **(least or {}), **(MAY_BE_EMPTY if allow_empty else {})}
    chosen = units
    for kind, wanted in gone.items():
        flags = _lowest_gone(units, kind, _listed(units, scores, kind), wanted, stays[kind], round_to)
        chosen = chosen.with_kept(kind, flags)
    return chosen


def _lowest_gone(
    units: Units, kind: str, scores: list[list[float]], wanted: int | Sequence[int], least: int, round_to: int
) -> list[list[bool]]:
    kept = [list(flags) for flags in units.of(kind)]
    counts = list(units.counts(kind))
    if isinstance(wanted, int):
        to_go, left = None, wanted - units.removed(kind)
    else:
        _require(len(wanted) == len(kept), f"{kind} to be gone", f"{len(kept)} numbers, one a block", len(wanted))
        to_go = [number - flags.count(False) for number, flags in zip(wanted, kept, strict=True)]
        left = sum(max(0, number) for number in to_go)
    order = sorted(
        (score, unit, block) for block, row in enumerate(scores) for unit, score in enumerate(row) if kept[block][unit]
    )
    taken: list[tuple[int, int]] = []
    for _, unit, block in order:
        if left <= 0:
            break
        if counts[block] <= least or (to_go is not None and to_go[block] <= 0):
            continue
        kept[block][unit] = False
        taken.append((block, unit))
        counts[block] -= 1
        left -= 1
        if to_go is not None:
            to_go[block] -= 1
    if kind in ROUNDED:
        # The last to go are the best of those that went.
        for block, unit in reversed(taken):
            if counts[block] % round_to:
                kept[block][unit] = True
                counts[block] += 1
    return kept


def _listed(units: Units, scores: Scores, kind: str) -> list[list[float]]:
    given = scores.get(kind)
    _require(given is not None, "scores", f"some for {kind}", ", ".join(scores) or "none")
    rows = [row.detach().double().cpu() for row in given or ()]
    sizes = tuple(len(row) for row in rows)
    _require(sizes == units.totals(kind), f"scores of {kind}", f"{units.totals(kind)} numbers", sizes)
    for block, row in enumerate(rows):
        finite = torch.isfinite(row)
        _require(bool(finite.all()), f"scores of {kind} in block {block}", "finite numbers", row[~finite][:3].tolist())
    return [row.tolist() for row in rows]


def _require(holds: bool, subject: str, wanted: str, received: object) -> None:
    if not holds:
        raise InputError(expected(subject, wanted, received))
