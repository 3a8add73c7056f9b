"""Several models asked about the same pictures: the mean of their probabilities, and how far they agree."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from vitscope.core.errors import UsageError, expected
from vitscope.infer.pictures import Given, Pictures, find_pictures
from vitscope.infer.prediction import Prediction, predictions
from vitscope.infer.predictor import Predictor, Progress

AT_ONCE = 4096
"""Pictures whose probabilities are held until every member has been asked: of 1,000 classes 33 MB."""


class Ensemble:
    """Predictors with the same classes, in whatever order; each prepares pictures as its own model learnt them."""

    def __init__(self, members: Sequence[Predictor], weights: Sequence[float] | None = None) -> None:
        """`weights` say how much each member counts; all alike by default."""
        if not members:
            raise UsageError(expected("members", "at least one predictor", "none"), where="Ensemble")
        for member in members:
            member.require_classes()
        given = [1.0] * len(members) if weights is None else list(weights)
        usable = all(math.isfinite(weight) and weight >= 0 for weight in given) and sum(given) > 0
        if len(given) != len(members) or not usable:
            numbers = "one number" if len(members) == 1 else f"{len(members)} numbers"
            received = ", ".join(f"{weight:g}" for weight in given)
            raise UsageError(
                expected("weights", f"{numbers}, none negative, not all 0", received),
                where=f"an ensemble of {len(members)}",
                fix="give a weight for each model, or none: then all count alike",
            )
        self.members = list(members)
        self.weights = [weight / sum(given) for weight in given]
        self.labels = members[0].labels
        self._orders = [_order(self.labels, member.labels, place) for place, member in enumerate(members)]

    @classmethod
    def load(
        cls, sources: str | Path | Sequence[str | Path], *, weights: Sequence[float] | None = None, **settings: Any
    ) -> Self:
        """From what `Predictor.load` takes; `settings` are for every member."""
        sources = [sources] if isinstance(sources, str | Path) else sources
        return cls([Predictor.load(source, **settings) for source in sources], weights)

    def classify(
        self, pictures: Pictures, *, top_k: int = 5, views: Sequence[str] = (), progress: Progress | None = None
    ) -> list[Prediction]:
        """As a predictor's, with `agreement`: the share of the members, by weight, that name the same class first."""
        if top_k < 1:
            raise UsageError(expected("top_k", "a number from 1", top_k), where="classify")
        given, answers = find_pictures(pictures), list[Prediction]()
        for start in range(0, len(given), AT_ONCE):
            told = _after(progress, start * len(self.members), len(given) * len(self.members))
            answers += self._of_some(given[start : start + AT_ONCE], top_k=top_k, views=views, progress=told)
        return answers

    def _of_some(
        self, given: Sequence[Given], *, top_k: int, views: Sequence[str], progress: Progress | None
    ) -> list[Prediction]:
        """Of so many that what all members say of them can be held."""
        mean = torch.zeros(len(given), len(self.labels))
        votes = torch.zeros(len(given), len(self.labels))
        errors: dict[int, str] = {}
        for number, (member, weight, order) in enumerate(zip(self.members, self.weights, self._orders, strict=True)):
            told = _after(progress, number * len(given), len(self.members) * len(given))
            for places, found in member.ask_probabilities(given, views=views, progress=told):
                if isinstance(found, str):
                    errors.setdefault(places[0], found)
                    continue
                mean[places] += weight * found[:, order].cpu()
                votes[places, found[:, order].argmax(-1).cpu()] += weight
        answers = predictions([one.name for one in given], mean, self.labels, top_k=top_k)
        for place, answer in enumerate(answers):
            if place in errors:
                answers[place] = Prediction(given[place].name, error=errors[place])
            elif answer.index is not None:
                answers[place] = replace(answer, agreement=float(votes[place, answer.index]))
        return answers


def _order(wanted: Sequence[str], labels: Sequence[str], place: int) -> Tensor:
    """For each class of the first member, its number in this one."""
    if sorted(wanted) != sorted(labels) or (len(set(labels)) != len(labels) and list(wanted) != list(labels)):
        missing = [label for label in wanted if label not in labels]
        strange = [label for label in labels if label not in wanted] or missing
        said = f": {', '.join(map(str, strange[:3]))}{' ...' * (len(strange) > 3)}" if strange else ""
        raise UsageError(
            f"model {place + 1} has other classes than model 1{said}",
            where=f"an ensemble of models of {len(wanted)} and {len(labels)} classes",
            fix="give models that tell the same classes apart",
        )
    if len(set(labels)) != len(labels):
        return torch.arange(len(labels))
    return torch.tensor([list(labels).index(label) for label in wanted])


def _after(progress: Progress | None, before: int, of: int) -> Progress | None:
    """Of a part: so many looks were done before it, of so many in all."""
    return None if progress is None else lambda done, _: progress(before + done, of)
