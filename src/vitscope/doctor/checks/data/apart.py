"""Do validation's labels mean what training's mean? Asked by predicting the ones from the others' pictures."""

from __future__ import annotations

import torch

from vitscope.doctor.experiments.probe import Predicted
from vitscope.doctor.finding import Finding
from vitscope.doctor.picture import Line, Picture
from vitscope.doctor.thresholds.data import EXPLAINS, SPLIT_Z, UNLIKE_SHARE

MOST_PAIRS = 4
"""Of classes that are told."""


def apart(own: Predicted, held_out: Predicted, shared: dict[str, int]) -> Finding | None:
    """`own`: training's labels predicted by each other; `held_out`: validation's by training's. `shared`: what is known
    of the labels' range."""
    guesses, labels, classes = held_out.scores.argmax(1), held_out.labels, held_out.classes
    counts = torch.bincount(guesses * classes + labels, minlength=classes * classes).view(classes, classes)
    plain = float(counts.diagonal().sum() / len(labels))
    names = counts.argmax(1)
    renamed = float(counts.amax(1).sum() / len(labels))
    error = (1 / classes * (1 - 1 / classes) / len(labels)) ** 0.5
    is_one_to_one = len(names.unique()) == classes
    is_better = renamed > 2 * plain and renamed - plain > 2 * SPLIT_Z * error and renamed > EXPLAINS * own.agreement
    if is_one_to_one and is_better:
        shifts = ((names - torch.arange(classes)) % classes).unique().tolist()
        if classes > 2 and shifts in ([1], [classes - 1]):
            return Finding("labels_off_by_one", 0.85, {**shared, "shift": 1 if shifts == [1] else -1})
        pairs = [f"{one} -> {other}" for one, other in enumerate(names.tolist()) if one != other]
        more = ", ..." if len(pairs) > MOST_PAIRS else ""
        numbers = {"plain": plain, "renamed": renamed, "pairs": ", ".join(pairs[:MOST_PAIRS]) + more}
        picture = _picture(["as they are", "renamed"], [plain, renamed], "Validation labels predicted right")
        return Finding("validation_classes_renamed", 0.9, {**numbers, "pictures": len(labels)}, picture=picture)
    above, expected = plain - held_out.chance, own.agreement - own.chance
    if above < UNLIKE_SHARE * expected and expected - above > 2 * SPLIT_Z * error:
        numbers = {"own": own.agreement, "held_out": plain, "chance": held_out.chance, "pictures": len(labels)}
        values = [own.agreement, plain, held_out.chance]
        picture = _picture(["training", "validation", "by chance"], values, "Labels predicted from training pictures")
        return Finding("validation_unlike_training", 0.7, numbers, picture=picture)
    return None


def _picture(names: list[str], values: list[float], title: str) -> Picture:
    return Picture(title, "", "share right", [Line("share", names, values)], kind="bars")
