"""One pass over the pictures for all that was asked: a file, the nearest, the points of a map."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from vitscope.infer.features.about import about_features, about_pictures
from vitscope.infer.features.extract import Taken, take_features
from vitscope.infer.features.features import BadPicture, Features
from vitscope.infer.features.nearest import Nearest
from vitscope.infer.features.pictures import Found
from vitscope.infer.features.reading import Reading
from vitscope.infer.features.stored import FeatureWriter, Rows

if TYPE_CHECKING:
    from vitscope.infer.predictor import Predictor, Progress

MOST_DRAWN = 20_000
"""Pictures of a map: more could not be told apart, nor be kept in memory for ever larger folders."""


class MapPoints:
    """Keeps the features of some of `count` pictures, spread evenly: all of them, up to `most`."""

    def __init__(self, count: int, most: int = MOST_DRAWN) -> None:
        step = max(1, -(-count // most))
        self._chosen = range(0, count, step)
        self.places: list[int] = []
        self._values: list[Tensor] = []

    def take(self, places: Sequence[int], values: Tensor) -> None:
        rows = [row for row, place in enumerate(places) if place in self._chosen]
        self.places += [places[row] for row in rows]
        self._values.append(values[rows])

    @property
    def values(self) -> Tensor:
        return torch.cat(self._values) if self._values else torch.zeros(0, 0)


@dataclass
class Collected:
    """What came of a pass."""

    count: int = 0
    bad: list[BadPicture] = field(default_factory=list)
    about: dict[str, Any] = field(default_factory=dict)


def collect(
    predictor: Predictor,
    found: Found,
    reading: Reading,
    *,
    writer: FeatureWriter | None = None,
    takers: Sequence[Nearest | MapPoints] = (),
    dtype: torch.dtype = torch.float32,
    source: str | None = None,
    progress: Progress | None = None,
) -> Collected:
    """`writer` gets every feature; `takers` get the first one. `source` is what the model was loaded from, for the
    file to say."""
    told = Collected(about=about_features(predictor, reading, dtype, source))
    first = reading.features[0].name
    for batch in take_features(predictor, found, reading, dtype=dtype, progress=progress):
        if isinstance(batch, BadPicture):
            told.bad.append(batch)
            continue
        told.count += len(batch.places)
        if writer is not None:
            writer.add(rows_of(found, batch), batch.values)
        for taker in takers:
            taker.take(batch.places, batch.values[first])
    told.bad.sort(key=lambda one: one.place)
    told.about |= about_pictures(found.classes, told.count, told.bad)
    if writer is not None:
        writer.finish(told.about, found.classes)
    return told


def pass_on(features: Features, name: str, takers: Sequence[Nearest | MapPoints]) -> None:
    """Features that are there already, to the same takers; pictures are numbered by their rows."""
    for taker in takers:
        taker.take(range(len(features)), features[name])


def rows_of(found: Found, batch: Taken) -> Rows:
    return Rows(
        [found.path(place) for place in batch.places],
        None if found.labels is None else [found.labels[place] for place in batch.places],
        None if found.parts is None else [found.parts[place] for place in batch.places],
    )
