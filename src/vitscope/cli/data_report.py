"""What `vitscope data` has found, as plain data: what --json prints and the tables show."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vitscope.core.config import to_dict
from vitscope.data.config import DataConfig, augmentation
from vitscope.data.dataset import Dataset
from vitscope.data.splits import PARTS, TRAIN
from vitscope.data.survey.suggest import Suggestions, suggest
from vitscope.data.survey.survey import Survey
from vitscope.data.survey.warn import imbalance, warnings_of
from vitscope.models.advice import Advice, advise
from vitscope.models.config import Wishes
from vitscope.models.variants import model_config
from vitscope.recipes import find_recipe
from vitscope.weights.pretrained import PRETRAINED

MOST_MEMBERS = 20
"""Places listed of one group of copies."""
LEAST_SIDE = 8
"""Smallest pictures there is advice for."""


def report_of(dataset: Dataset, survey: Survey, sheets: Sequence[Path]) -> dict[str, Any]:
    """Everything, in plain data."""
    source = dataset.source
    suggestions = suggest(survey, dataset.class_names)
    advice = _advice(survey, suggestions)
    found = survey.to_dict()
    for group in found["duplicates"]["groups"]:
        group["count"] = len(group["members"])
        for key in ("members", "parts", "labels"):
            group[key] = group[key][:MOST_MEMBERS]
        group["where"] = [source.where(index) for index in group["members"]]
    for group, data in zip(survey.duplicates.groups, found["duplicates"]["groups"], strict=True):
        data["example"] = [_copy(dataset, group, index) for index in group.example()]
    return {
        "name": dataset.config.name,
        "kind": source.kind,
        "place": source.place,
        "class_names": list(dataset.class_names),
        "notes": list(source.notes),
        "split": {
            "how": dataset.splits.how,
            "hash": dataset.splits.hash,
            "counts": {part: len(dataset.splits[part]) for part in PARTS},
        },
        "imbalance": imbalance(np.array(survey.counts[TRAIN])),
        "bad_limit": dataset.config.bad_limit,
        "warnings": warnings_of(dataset, survey),
        "survey": found,
        "suggestions": suggestions.to_dict(),
        "model": {
            "name": advice.chosen.name,
            "img_size": advice.chosen.config.img_size,
            "patch_size": advice.chosen.config.patch_size,
            "why": advice.why,
            "cautions": advice.cautions,
        },
        "next": _next_command(dataset, suggestions, advice),
        "sheets": [str(path) for path in sheets],
    }


def _copy(dataset: Dataset, group: Any, index: int) -> dict[str, str]:
    place = group.members.index(index)
    label = dataset.class_names[group.labels[place]]
    return {"where": dataset.source.where(index), "part": group.parts[place], "label": label}


def _advice(survey: Survey, suggestions: Suggestions) -> Advice:
    side = max(LEAST_SIDE, min(suggestions.preprocess.img_size))
    return advise(Wishes(images=sum(survey.counts[TRAIN]) or None, img_size=side))


def _next_command(dataset: Dataset, suggestions: Suggestions, advice: Advice) -> str:
    """To be typed as it stands: trains the model that was advised, as was suggested; from published weights where the
    advice says so."""
    data, plain = to_dict(dataset.config), to_dict(DataConfig())
    chosen, preset = to_dict(advice.chosen.config), to_dict(model_config(advice.chosen.name))
    chosen["in_chans"] = suggestions.preprocess.in_chans
    usual = augmentation(suggestions.strength, chosen["img_size"])
    start = ["--data", dataset.config.name, "--model", advice.chosen.name]
    if advice.begins_pretrained and advice.chosen.name in PRETRAINED:
        start = ["finetune", "--from", PRETRAINED[advice.chosen.name].hub, "--data", dataset.config.name]
        plain["batch_size"] = data["batch_size"] = find_recipe("finetune")().data.batch_size
    words = ["vitscope", "train", *start]
    words += _flags("model", chosen, preset, ("img_size", "patch_size", "in_chans"))
    words += ["--augment", suggestions.strength]
    words += _flags("augment", to_dict(suggestions.augment), to_dict(usual), ("flip",))
    images = len(dataset.splits[TRAIN])
    if 0 < images < plain["batch_size"]:  # an epoch has whole batches only
        data["batch_size"] = 2 ** (images.bit_length() - 1)
    words += _flags("data", data, plain, ("image_column", "label_column", "split_seed", "batch_size"))
    return shlex.join(words)


def _flags(section: str, wanted: dict[str, Any], preset: dict[str, Any], keys: Sequence[str]) -> list[str]:
    """What differs from the preset, as flags."""
    words: list[str] = []
    for key in keys:
        if wanted[key] != preset[key]:
            values = wanted[key] if isinstance(wanted[key], list | tuple) else [wanted[key]]
            words += [f"--{section}.{key.replace('_', '-')}", *map(str, values)]
    return words
