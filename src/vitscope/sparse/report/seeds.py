"""Rows that differ only in their seed, and what is said of a number over them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeGuard

from vitscope.core.errors import DataError, expected
from vitscope.sparse.config import CONTROLS
from vitscope.sparse.rows import DENSE, Row


@dataclass(frozen=True)
class Spread:
    """A number over seeds."""

    count: int
    mean: float
    low: float
    high: float
    deviation: float | None
    """Of the sample (n - 1 below the line); None with one seed, which has none."""


def mean_and_spread(values: Iterable[float | None]) -> Spread | None:
    """Of the values that are known and finite; None where there is none."""
    known = [value for value in values if is_known(value)]
    if not known:
        return None
    return Spread(
        count=len(known),
        mean=statistics.fmean(known),
        low=min(known),
        high=max(known),
        deviation=statistics.stdev(known) if len(known) > 1 else None,
    )


def is_known(value: float | None) -> TypeGuard[float]:
    """A network that diverged may have scored NaN, which is no number to average."""
    return value is not None and math.isfinite(value)


@dataclass(frozen=True)
class Network:
    """One network of one round, in the rows of all its seeds."""

    round: int
    name: str
    rows: tuple[Row, ...]
    """By seed, one each."""

    @property
    def is_control(self) -> bool:
        return self.rows[0].is_control

    @property
    def is_masked(self) -> bool:
        """Zeros in place of weights: as many numbers, as many multiplications, and nobody timed it faster."""
        return all(map(is_masked, self.rows))

    def over_seeds(self, column: str) -> Spread | None:
        return mean_and_spread(getattr(row, column) for row in self.rows)


def is_masked(row: Row) -> bool:
    units = (row.heads_removed, row.neurons_removed, row.channels_removed)
    timed = (row.speedup_batch1, row.speedup_batch256, row.eager_speedup_batch1, row.eager_speedup_batch256)
    return row.weights_removed > 0 and not any(units) and all(speedup is None for speedup in timed)


def networks_of(rows: Sequence[Row]) -> list[Network]:
    """The dense network, then round by round the algorithm and the controls it is held against."""
    if not rows:
        raise DataError(expected("the rows of a report", "at least one", "none"))
    found: dict[tuple[int, str], dict[int, Row]] = {}
    for row in rows:
        of_seed = found.setdefault((row.round, row.network), {})
        if row.seed in of_seed:
            raise DataError(
                expected("the rows of a report", "one for each seed, round and network", "two"),
                where=f"seed {row.seed}, round {row.round}, {row.network}",
            )
        of_seed[row.seed] = row
    networks = [
        Network(number, name, tuple(of_seed[seed] for seed in sorted(of_seed)))
        for (number, name), of_seed in found.items()
    ]
    return sorted(networks, key=lambda network: (network.round, _place(network.name), network.name))


def algorithms_of(networks: Iterable[Network]) -> list[str]:
    return list(dict.fromkeys(one.name for one in networks if one.name != DENSE and not one.is_control))


def _place(name: str) -> int:
    order = [DENSE, "", *(f"control:{control}" for control in CONTROLS)]
    return order.index(name) if name in order else len(order) if name.startswith("control:") else 1
