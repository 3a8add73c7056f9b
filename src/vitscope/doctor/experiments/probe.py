"""Can labels be predicted from the pictures at all? Ridge regression on fixed features, each picture predicted by all
others: exact, from one decomposition, and without training the patient.

N pictures, K classes that occur.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from vitscope.doctor.experiments.features import features_of
from vitscope.doctor.thresholds.data import CONFIDENT_SHARE

STRENGTHS = (0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0)
"""Of the ridge, in mean eigenvalues."""


@dataclass(frozen=True)
class Predicted:
    """What the pictures say of their labels."""

    scores: Tensor
    """(N, K)."""
    labels: Tensor
    """(N,) from 0 to K - 1."""

    @property
    def classes(self) -> int:
        return self.scores.shape[1]

    @property
    def agreement(self) -> float:
        """Share of labels that are the predicted ones."""
        return float((self.scores.argmax(1) == self.labels).double().mean())

    @property
    def chance(self) -> float:
        """Agreement if labels had nothing to do with pictures but came as often."""
        guesses = torch.bincount(self.scores.argmax(1), minlength=self.classes).double()
        labels = torch.bincount(self.labels, minlength=self.classes).double()
        return float((guesses * labels).sum() / len(self.labels) ** 2)

    @property
    def above_chance(self) -> float:
        """In standard errors."""
        chance = self.chance
        return (self.agreement - chance) / max((chance * (1 - chance) / len(self.labels)) ** 0.5, 1e-9)

    def confident(self) -> tuple[float, float, int]:
        """Of the pictures whose predicted class leads by most: the share whose label it is, the share whose label is in
        the less likely half of the classes, and how many they are."""
        best = self.scores.topk(2, dim=1).values
        count = max(1, int(len(self.labels) * CONFIDENT_SHARE))
        chosen = (best[:, 0] - best[:, 1]).topk(count).indices
        own = self.scores.gather(1, self.labels[:, None])
        rank = (self.scores > own).sum(1)[chosen]
        return float((rank == 0).double().mean()), float((rank >= (self.classes + 1) // 2).double().mean()), count

    def strangeness(self) -> float:
        """Of the more confident half: how unlikely labels are that were not predicted, from 0 (each the next likely) to
        1 (each the least likely). Labels drawn by chance have 0.5, pictures that are hard to tell far less."""
        best = self.scores.topk(2, dim=1).values
        chosen = (best[:, 0] - best[:, 1]).topk(max(1, len(self.labels) // 2)).indices
        rank = (self.scores > self.scores.gather(1, self.labels[:, None])).sum(1)[chosen]
        missed = rank[rank > 0]
        return float((missed - 1).double().mean() / (self.classes - 2)) if len(missed) and self.classes > 2 else 0.0


def predict_each(images: Tensor, labels: Tensor) -> Predicted:
    """Each picture's scores from all the others."""
    return predict_other(images, labels, images[:0], labels[:0])[0]


def predict_other(images: Tensor, labels: Tensor, others: Tensor, other_labels: Tensor) -> tuple[Predicted, Predicted]:
    """`predict_each` of the first, and the others predicted by the first; others of unknown classes are left out."""
    classes, places = labels.unique(return_inverse=True)
    known = torch.isin(other_labels, classes)
    others, other_labels = others[known], other_labels[known]
    features, count = features_of(torch.cat([images, others])), len(images)
    apart = torch.cdist(features, features[:count]).square_()
    likeness = torch.exp(-apart / apart[:count].median().clamp(min=1e-12))
    wanted = F.one_hot(places, len(classes)).to(likeness.dtype)
    scores, weights = _left_out(likeness[:count], wanted - wanted.mean(0))
    theirs = likeness[count:] @ weights + wanted.mean(0)
    return Predicted(scores, places), Predicted(theirs, torch.searchsorted(classes, other_labels))


def _left_out(likeness: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """(N, K) each row predicted without itself, at the strength that does this best, and the weights of all rows. All
    that is wanted has mean 0."""
    values, vectors = torch.linalg.eigh(likeness)
    values = values.clamp(min=0)
    aims = vectors.T @ wanted
    squares = vectors**2
    best: tuple[float, Tensor, Tensor] | None = None
    for strength in STRENGTHS:
        ridge = strength * float(values.mean())
        shrunk = values / (values + ridge)
        own = (squares @ shrunk)[:, None]
        without = (vectors @ (shrunk[:, None] * aims) - own * wanted) / (1 - own).clamp(min=1e-4)
        error = float(((without - wanted) ** 2).mean())
        if best is None or error < best[0]:
            best = (error, without, vectors @ (aims / (values + ridge)[:, None]))
    if best is None:
        raise ValueError("no strength to try")
    return best[1], best[2]
