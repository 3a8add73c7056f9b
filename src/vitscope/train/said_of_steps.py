"""What settings and data together make of a run, where a person may not expect it: said once, at the start."""

from __future__ import annotations

import re

from vitscope.data.dataset import Dataset
from vitscope.models.build import CONFIGS
from vitscope.models.variants import VARIANTS
from vitscope.train.config import TrainConfig

LEFT_OUT = 0.1
"""Share of the training pictures from which on it is said that they are left out."""
FEW_UPDATES = 100
MOST_NAMED = 5
"""Classes that have no pictures."""


def said_of_classes(asked: TrainConfig, num_classes: int, command: str | None) -> list[str]:
    """That the data decide the number of classes, where somebody asked for another. The number of a preset, or of
    weights that are taken over, is nobody's wish. `command` is what was typed."""
    given, name = asked.model.bare.num_classes, asked.model.name
    usual = VARIANTS[name].config if name in VARIANTS else CONFIGS[asked.model.family]()
    was_typed = re.search(r"--model\.num[-_]classes\b", command or "") is not None
    was_set = given != getattr(usual, "num_classes", None) and asked.checkpoint.init_from is None
    if given == num_classes or not (was_typed or was_set):
        return []
    return [f"num_classes {given:,} -> {num_classes:,}, from the data"]


def said_of_empty(dataset: Dataset) -> list[str]:
    """Classes that have a name and no pictures: an empty folder is one, as torchvision and a schema count them."""
    empty = [name for name, count in zip(dataset.class_names, dataset.counts("train"), strict=True) if not count]
    if not empty:
        return []
    named = ", ".join(f"'{name}'" for name in empty[:MOST_NAMED])
    more = f" and {len(empty) - MOST_NAMED:,} more" if len(empty) > MOST_NAMED else ""
    count = f"the model's {dataset.num_classes:,} classes, and nothing teaches"
    if len(empty) == 1:
        return [f"warning: class {named} has no pictures. It is one of {count} it: add pictures, or remove the class"]
    return [
        f"warning: classes {named}{more} have no pictures. They are among {count} them: add pictures, or remove them"
    ]


def said_of_updates(config: TrainConfig, *, pictures: int, steps_per_epoch: int) -> list[str]:
    """Where batches fit the pictures badly, or are too few to learn from."""
    epochs, said = config.loop.epochs, []
    left = pictures - steps_per_epoch * config.data.batch_size
    if left > LEFT_OUT * pictures:
        said.append(
            f"{left:,} of {pictures:,} training pictures are left out of each epoch (the last incomplete batch), "
            "different ones each time; a smaller --batch-size leaves out fewer"
        )
    updates = steps_per_epoch * epochs
    if updates < FEW_UPDATES:
        how_many = "1 update" if updates == 1 else f"{updates:,} updates"
        each = f"{steps_per_epoch:,} in each of {epochs:,} epochs" if epochs > 1 else "one epoch"
        said.append(f"{how_many} in all: {each}; more --epochs or a smaller --batch-size make more")
    return said
