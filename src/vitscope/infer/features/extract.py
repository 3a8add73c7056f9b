"""Features of pictures, batch by batch: nothing is kept here, so a folder of any length needs the memory of a batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from vitscope.core.dtypes import SHORT_NAMES
from vitscope.core.errors import UsageError, expected
from vitscope.infer.features.about import about_features, about_pictures
from vitscope.infer.features.features import BadPicture, Features
from vitscope.infer.features.layouts import Tokens
from vitscope.infer.features.pictures import Found, find_labelled, reading_sets
from vitscope.infer.features.reading import Reading
from vitscope.infer.pictures import Pictures
from vitscope.infer.stream import prepare_for

if TYPE_CHECKING:
    from vitscope.infer.predictor import Predictor, Progress

NO_NUMBER = "the model's answer is not a number"


@dataclass(frozen=True)
class Taken:
    """Features of some pictures."""

    places: list[int]
    values: dict[str, Tensor]
    """Name -> (B, ...), on the CPU."""


def reading_of(
    predictor: Predictor,
    *,
    layers: int | Sequence[int] | None = -1,
    tokens: Tokens = "pooled",
    norm: bool = True,
) -> Reading:
    """What to read from a predictor's model, for pictures of its size."""
    size = (predictor.preprocessing.in_chans, *predictor.preprocessing.img_size)
    return Reading(predictor.model, size, layers=layers, tokens=tokens, norm=norm)


def take_features(
    predictor: Predictor,
    found: Found,
    reading: Reading,
    *,
    dtype: torch.dtype = torch.float32,
    batch_size: int | None = None,
    progress: Progress | None = None,
) -> Iterator[Taken | BadPicture]:
    """In the order of the pictures, but for bad ones, which come with their batch."""
    if dtype not in SHORT_NAMES:
        raise UsageError(expected("dtype", f"one of {', '.join(map(str, SHORT_NAMES))}", dtype))
    prepare = reading_sets(prepare_for(predictor.preprocessing))
    asked = predictor.ask(found.given, reading.together, prepare=prepare, batch_size=batch_size, progress=progress)
    for places, rows in asked:
        if isinstance(rows, str):
            yield BadPicture(places[0], found.path(places[0]), rows)
            continue
        kept = rows.to(dtype)
        usable = kept.isfinite().all(1)
        if not usable.all():
            for row in (~usable).nonzero()[:, 0].tolist():
                fits = bool(rows[row].isfinite().all())
                reason = f"numbers too large for {dtype}: keep bf16 or fp32" if fits else NO_NUMBER
                yield BadPicture(places[row], found.path(places[row]), reason)
            places = [place for place, good in zip(places, usable.tolist(), strict=True) if good]
            kept = kept[usable]
        if places:
            yield Taken(places, reading.apart(kept.cpu()))


def features_of(
    predictor: Predictor,
    pictures: Pictures | Found,
    *,
    layers: int | Sequence[int] | None = -1,
    tokens: Tokens = "pooled",
    norm: bool = True,
    dtype: torch.dtype = torch.float32,
    batch_size: int | None = None,
    progress: Progress | None = None,
) -> Features:
    """All in memory: `Predictor.features`."""
    found = pictures if isinstance(pictures, Found) else find_labelled(pictures)
    reading = reading_of(predictor, layers=layers, tokens=tokens, norm=norm)
    bad: list[BadPicture] = []
    taken: list[Taken] = []
    for batch in take_features(predictor, found, reading, dtype=dtype, batch_size=batch_size, progress=progress):
        bad.append(batch) if isinstance(batch, BadPicture) else taken.append(batch)
    return gathered(predictor, found, reading, taken, bad, dtype=dtype)


def gathered(
    predictor: Predictor,
    found: Found,
    reading: Reading,
    taken: Sequence[Taken],
    bad: Sequence[BadPicture],
    *,
    dtype: torch.dtype,
) -> Features:
    """Batches as one."""
    places = [place for batch in taken for place in batch.places]
    values = {
        feature.name: torch.cat([batch.values[feature.name] for batch in taken])
        if taken
        else torch.zeros((0, *feature.shape), dtype=dtype)
        for feature in reading.features
    }
    bad = sorted(bad, key=lambda one: one.place)
    return Features(
        values=values,
        paths=[found.path(place) for place in places],
        places=places,
        labels=None if found.labels is None else torch.tensor([found.labels[place] for place in places]).long(),
        classes=found.classes,
        parts=None if found.parts is None else [found.parts[place] for place in places],
        bad=bad,
        about=about_features(predictor, reading, dtype, None) | about_pictures(found.classes, len(places), bad),
    )
