"""A network through the rounds as spots of a picture: every seed's, the means, and the lines between."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from vitscope.sparse.report.labels import Spot
from vitscope.sparse.report.seeds import Network, is_known, mean_and_spread
from vitscope.sparse.rows import DENSE, Row
from vitscope.train.show.plots.canvas import BLUE, GREEN, GREY, ORANGE, RED

PURPLE, SKY = "#CC79A7", "#56B4E9"
"""The rest of the palette of `canvas`: six networks in one picture."""
LOOKS = {
    DENSE: (GREY, "D"),
    "control:dense": (GREEN, "^"),
    "control:random": (ORANGE, "s"),
    "control:reinit": (PURPLE, "v"),
    "control:oneshot": (RED, "X"),
}
OF_ALGORITHMS = ((BLUE, "o"), (SKY, "P"))
SHARE, SPEED = "weights_removed", "speedup_batch256"


@dataclass(frozen=True)
class Series:
    """One network through the rounds."""

    name: str
    colour: str
    marker: str
    networks: tuple[Network, ...]


def series_of(networks: Sequence[Network]) -> list[Series]:
    """The dense network, algorithms, controls."""
    names = list(dict.fromkeys(one.name for one in networks))
    names.sort(key=lambda name: (name != DENSE, name.startswith("control:")))
    free = list(OF_ALGORITHMS)
    found: list[Series] = []
    for name in names:
        colour, marker = LOOKS.get(name) or (free.pop(0) if free else (GREY, "*"))
        found.append(Series(name, colour, marker, tuple(one for one in networks if one.name == name)))
    return found


def start_of(series: Sequence[Series], x: str, y: str) -> Spot | None:
    """The dense network."""
    return next((middle_of(one.networks[0], x, y) for one in series if one.name == DENSE), None)


def lines_of(series: Series, start: Spot | None, x: str, y: str) -> list[tuple[Spot, Spot]]:
    """From round to round; an algorithm's begin at the dense network. The dense networks do not move to the right."""
    if series.name in (DENSE, "control:dense"):
        return []
    middles = middles_of(series, x, y)
    joined = middles if start is None or series.name.startswith("control:") else [start, *middles]
    return list(itertools.pairwise(joined))


def middles_of(series: Series, x: str, y: str) -> list[Spot]:
    return [found for network in series.networks if (found := middle_of(network, x, y)) is not None]


def dots_of(series: Series, x: str, y: str) -> list[Spot]:
    """Of every seed, where there are several."""
    pairs = [_spot(row, x, y) for one in series.networks if len(one.rows) > 1 for row in one.rows]
    return [pair for pair in pairs if pair is not None]


def middle_of(network: Network, x: str, y: str) -> Spot | None:
    """Both means over the same seeds: those that have both."""
    spots = [spot for row in network.rows if (spot := _spot(row, x, y)) is not None]
    across, up = (mean_and_spread(values) for values in zip(*spots, strict=True)) if spots else (None, None)
    return None if across is None or up is None else (across.mean, up.mean)


def _spot(row: Row, x: str, y: str) -> Spot | None:
    is_dense = row.network in (DENSE, "control:dense")  # trained on or not, it is as fast as itself
    one, another = (1.0 if is_dense and field == SPEED else getattr(row, field) for field in (x, y))
    return (one, another) if is_known(one) and is_known(another) else None
