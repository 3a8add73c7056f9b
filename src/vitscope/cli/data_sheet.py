"""The contact sheets `vitscope data` draws: the pictures as they are, and as training would see them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vitscope.core.config import updated
from vitscope.core.seed import derive_seed, preserved_rng
from vitscope.data.config import AugmentConfig, PreprocessConfig, augmentation
from vitscope.data.dataset import Dataset
from vitscope.data.decode import BadImageError, decode_image
from vitscope.data.splits import PARTS, TRAIN
from vitscope.data.survey.contact_sheet import MOST_ROWS, PER_ROW, choose, draw_contact_sheet
from vitscope.data.survey.suggest import suggest
from vitscope.data.survey.survey import Survey

if TYPE_CHECKING:
    from PIL.Image import Image

SHRUNK = 512
"""Longest side a picture keeps while it waits to be drawn: two hundred photographs would fill the memory."""


def draw_sheet(dataset: Dataset, survey: Survey, path: Path) -> Path:
    """Ten pictures of each class, training pictures first choice."""
    total = np.sum([survey.counts[part] for part in PARTS], axis=0)
    shown = dataset.class_names[:MOST_ROWS]
    pictures = _pictures(dataset, survey)
    return draw_contact_sheet(
        [(name, pictures[label]) for label, name in enumerate(shown)],
        path,
        title=f"{dataset.config.name}: {survey.total:,} pictures",
        counts=[int(count) for count in total[: len(shown)]],
        classes=dataset.num_classes,
    )


def draw_augmented(dataset: Dataset, survey: Survey, strength: str, path: Path) -> Path:
    """The same pictures as training with this strength would see them."""
    suggested = suggest(survey, dataset.class_names)
    augment = augmentation(strength, suggested.preprocess.img_size)
    if suggested.augment.flip == "none":  # as the report says beside it
        augment = updated(augment, flip="none")
    varied = [
        [vary(picture, augment, suggested.preprocess, f"{label} {place}") for place, picture in enumerate(row)]
        for label, row in enumerate(_pictures(dataset, survey))
    ]
    size = " x ".join(map(str, suggested.preprocess.img_size))
    return draw_contact_sheet(
        list(zip(dataset.class_names, varied, strict=False)),
        path,
        title=f"{dataset.config.name}, augmentation '{strength}' at {size} (without erasing and mixing)",
        classes=dataset.num_classes,
    )


def vary(picture: Image, augment: AugmentConfig, preprocess: PreprocessConfig, draw: str) -> Image:
    """One picture as training would see it; `draw` names the draw."""
    import torch
    from PIL.Image import fromarray

    from vitscope.data.transforms.picture import picture_transform

    seed = derive_seed("contact sheet", draw)
    with preserved_rng():
        torch.manual_seed(seed)
        pixels = picture_transform(augment, preprocess)(picture, mirrored=augment.flip != "none" and seed % 2 == 1)
    return fromarray(pixels[0].numpy() if len(pixels) == 1 else pixels.permute(1, 2, 0).numpy())


def _pictures(dataset: Dataset, survey: Survey) -> list[list[Image]]:
    """Ten pictures of each of the first classes, those that cannot be decoded left out."""
    bad = np.array([told.index for told in survey.bad], np.int64)
    train = np.setdiff1d(dataset.splits[TRAIN], bad)
    everything = np.setdiff1d(np.concatenate([dataset.splits[part] for part in PARTS]), bad)
    labels = dataset.source.labels
    chosen: list[int] = []
    for label in range(min(dataset.num_classes, MOST_ROWS)):
        members = train[labels[train] == label]
        own = choose(members[:: max(1, len(members) // 5000)])  # thousands to draw from are enough
        others = np.setdiff1d(everything[labels[everything] == label], members)
        chosen += own + choose(others, PER_ROW - len(own))
    rows: list[list[Image]] = [[] for _ in range(min(dataset.num_classes, MOST_ROWS))]
    for index, content in dataset.source.scan(sorted(chosen)):
        if isinstance(content, Exception):
            continue
        try:
            picture = decode_image(content, pixel_limit=dataset.config.pixel_limit)
        except BadImageError:  # one the survey did not look at
            continue
        picture.thumbnail((SHRUNK, SHRUNK))
        rows[int(labels[index])].append(picture)
    return rows
