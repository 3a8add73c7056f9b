"""`vitscope features` over pictures: a file of features, the pictures most like one, a map."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from vitscope.cli.features_paths import PROG, Paths
from vitscope.cli.progress import progress_bar
from vitscope.cli.writing import writing
from vitscope.core.dtypes import TORCH_DTYPES
from vitscope.core.errors import DataError, UsageError
from vitscope.core.near_path import did_you_mean_path
from vitscope.infer.features.collect import MOST_DRAWN, MapPoints, collect, pass_on
from vitscope.infer.features.extract import features_of, reading_of
from vitscope.infer.features.features import Features
from vitscope.infer.features.files import is_features_file, read_features, writer_to
from vitscope.infer.features.looked import Looked, reading_like
from vitscope.infer.features.map_picture import draw_map
from vitscope.infer.features.nearest import Nearest
from vitscope.infer.features.neighbour_sheet import draw_neighbours
from vitscope.infer.features.pictures import Found, find_labelled
from vitscope.infer.features.projection import project
from vitscope.infer.features.reading import Feature, Reading
from vitscope.infer.pictures import find_pictures
from vitscope.infer.predictor import Predictor

if TYPE_CHECKING:
    from vitscope.cli.features import FeaturesCommand

MOST_TSNE = 5000
"""Pictures t-SNE arranges: its time grows faster than their number."""


def pass_over(command: FeaturesCommand, paths: Paths, predictor: Predictor) -> dict[str, Any]:
    """Once over all pictures; plain data of what was found and written."""
    kept = _kept(command)
    if kept is None:
        looked = Looked(find_labelled(command.images[0] if len(command.images) == 1 else command.images))
        layers = None if command.layers == "all" else command.layers or -1
        reading = reading_of(predictor, layers=layers, tokens=command.tokens, norm=command.norm)
    else:
        looked, reading = Looked.in_file(kept), reading_like(kept, predictor)
    feature = reading.features[0]
    most = MOST_TSNE if command.map_by == "tsne" else MOST_DRAWN
    points = None if paths.map is None else MapPoints(len(looked), most)
    nearest = None if command.nearest is None else _asked(command, predictor, feature, looked)
    takers = [taker for taker in (points, nearest) if taker is not None]
    if kept is None:
        about = _collected(command, paths, predictor, looked.found, reading, takers)
    else:
        pass_on(kept, feature.name, takers)
        about = dict(kept.about)
    told: dict[str, Any] = {name: about[name] for name in ("count", "bad", "features", "dtype")}
    if paths.out is not None:
        told["out"] = {"path": str(paths.out), "bytes": paths.out.stat().st_size}
    if nearest is not None:
        told["nearest"] = _named(nearest, looked)
        if paths.sheet is not None and nearest.found:
            with writing(paths.sheet, flag="--sheet"):
                told["sheet"] = str(_draw_sheet(command, nearest, looked, feature, paths.sheet))
    if points is not None and paths.map is not None and len(points.places) > 1:
        with writing(paths.map, flag="--map"):
            told["map"] = str(_draw_map(command, points, looked, feature, paths.map, about["count"]))
    return told


def _kept(command: FeaturesCommand) -> Features | None:
    """Features that were taken before, where IMAGES is a file of them."""
    files = [one for one in command.images if is_features_file(one)]
    if not files:
        return None
    if len(command.images) > 1 or command.out is not None:
        raise UsageError(
            f"'{files[0]}' holds features, not pictures",
            where=PROG,
            fix="give it alone, with --nearest or --map" if command.out is None else "give the pictures themselves",
        )
    return read_features(files[0])


def _collected(
    command: FeaturesCommand,
    paths: Paths,
    predictor: Predictor,
    found: Found,
    reading: Reading,
    takers: list[Nearest | MapPoints],
) -> dict[str, Any]:
    dtype = TORCH_DTYPES[command.store]
    writer = nullcontext() if paths.out is None else writer_to(paths.out, reading, dtype, found.classes)
    with writing(paths.out), progress_bar("looking") as progress, writer as opened:
        return collect(
            predictor,
            found,
            reading,
            writer=opened,
            takers=takers,
            dtype=dtype,
            source=command.model,
            progress=progress,
        ).about


def _asked(command: FeaturesCommand, predictor: Predictor, feature: Feature, looked: Looked) -> Nearest:
    """Its features first: what cannot be read is told before a folder is gone through."""
    path = command.nearest or ""
    given = find_pictures(path)
    if len(given) != 1:
        raise UsageError(f"--nearest stands for {len(given):,} pictures", where=path, fix="give one picture")
    found = features_of(
        predictor,
        Found(given),
        layers=feature.layer,
        tokens=feature.tokens,
        norm=feature.norm == "after",
        dtype=torch.float32,
    )
    if found.bad:
        raise DataError(
            f"--nearest cannot be read: {found.bad[0].reason}",
            where=path,
            fix=did_you_mean_path(path) or "give another picture",
        )
    return Nearest(found.only[0], top_k=command.top_k, without=looked.same_file(path))


def _named(nearest: Nearest, looked: Looked) -> list[dict[str, Any]]:
    return [
        {
            "path": looked.found.path(one.place),
            "place": one.place,
            "similarity": one.similarity,
            "class": looked.class_of(one.place),
        }
        for one in nearest.found
    ]


def _draw_sheet(command: FeaturesCommand, nearest: Nearest, looked: Looked, feature: Feature, path: Path) -> Path:
    shown = [
        (
            looked.picture(one.place),
            one.similarity,
            Path(looked.found.path(one.place) or f"picture {one.place}").name,
            looked.class_of(one.place) or "",
        )
        for one in nearest.found
    ]
    asked = find_pictures(command.nearest or "")[0]
    query = Looked(Found([asked])).picture(0)
    return draw_neighbours(query, shown, path, name=Path(asked.name or "").name, below=f"cosine of {feature.in_words}")


def _draw_map(
    command: FeaturesCommand, points: MapPoints, looked: Looked, feature: Feature, path: Path, count: int
) -> Path:
    projection = project(points.values, command.map_by)
    labels = looked.found.labels
    name = "PCA" if command.map_by == "pca" else "t-SNE"
    some = f"{len(points.places):,} of {count:,}" if len(points.places) < count else f"{count:,}"
    return draw_map(
        projection,
        path,
        title=f"{some} pictures as '{Path(command.model or '').name}' sees them",
        below=f"{name} of {feature.in_words}",
        labels=None if labels is None else [labels[place] for place in points.places],
        classes=looked.found.classes,
        look=(lambda row: looked.picture(points.places[row])) if command.thumbnails else None,
    )
