"""`vitscope features --knn DATA --probe DATA`: how good a model's features are."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from vitscope.cli.progress import progress_bar
from vitscope.core.dtypes import TORCH_DTYPES
from vitscope.data.dataset import Dataset, open_dataset
from vitscope.infer.features.judge import (
    ENOUGH_LAYERS,
    Labelled,
    Verdict,
    judge_neighbours,
    judge_probes,
    labelled_features,
)
from vitscope.infer.features.layouts import layout_of
from vitscope.infer.predictor import Predictor

if TYPE_CHECKING:
    from vitscope.cli.features import FeaturesCommand


def judge_features(command: FeaturesCommand, predictor: Predictor) -> dict[str, Any]:
    """Plain data under `knn` and `probe`, of what was asked for. The same data go through the model once."""
    told: dict[str, Any] = {}
    seen: dict[str, tuple[Dataset, Labelled]] = {}
    for what, name in (("knn", command.knn), ("probe", command.probe)):
        if name is None:
            continue
        if name not in seen:
            dataset = open_dataset(name)
            seen[name] = dataset, _labelled(command, predictor, dataset)
        dataset, labelled = seen[name]
        if what == "knn":
            verdict = judge_neighbours(labelled, grid=command.k, device=predictor.device)
        else:
            verdict = judge_probes(labelled, lrs=command.lrs, epochs=command.epochs, device=predictor.device)
        told[what] = {"data": name, "split": dataset.splits.how, **_plain(verdict, labelled)}
    return told


def _labelled(command: FeaturesCommand, predictor: Predictor, dataset: Dataset) -> Labelled:
    layers = None if command.layers == "all" else command.layers
    with progress_bar("looking") as progress:
        return labelled_features(
            predictor,
            dataset,
            layers=list(layout_of(predictor.model).layers)[-ENOUGH_LAYERS:] if layers == () else layers,
            tokens=command.tokens,
            norm=command.norm,
            dtype=TORCH_DTYPES[command.store],
            progress=progress,
        )


def _plain(verdict: Verdict, labelled: Labelled) -> dict[str, Any]:
    return {
        "counts": dict(verdict.counts),
        "epochs": verdict.epochs,
        "tried": [asdict(one) for one in verdict.tried],
        "best": asdict(verdict.best),
        "test_accuracy": verdict.test_accuracy,
        "test_accuracy_95": verdict.test_interval,
        "bad": [asdict(one) for one in labelled.bad],
    }
