"""What a model says of one picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class Guess:
    """One class and how likely it is."""

    label: str
    index: int
    """The class's number."""
    probability: float


@dataclass(frozen=True)
class Prediction:
    """The classes a model sees in a picture, the likeliest first; or why it could not look."""

    path: str | None
    """Of the file; None for what came from none."""
    label: str | None = None
    """The likeliest class. None, as the next two, where there is an error."""
    index: int | None = None
    confidence: float | None = None
    """Its probability."""
    top_k: tuple[Guess, ...] = ()
    error: str | None = None
    agreement: float | None = None
    """Of several models, the share that names this class first."""

    def to_dict(self) -> dict[str, Any]:
        """For JSON: an error row holds nothing but its path and the error."""
        if self.error is not None:
            return {"path": self.path, "error": self.error}
        told = {
            "path": self.path,
            "label": self.label,
            "index": self.index,
            "confidence": self.confidence,
            "top_k": [vars(guess) for guess in self.top_k],
        }
        return told if self.agreement is None else {**told, "agreement": self.agreement}


def predictions(
    names: Sequence[str | None], probabilities: Tensor, labels: Sequence[str], *, top_k: int
) -> list[Prediction]:
    """From probabilities (B, K); a row that is not numbers is an error."""
    values, indices = probabilities.cpu().topk(min(top_k, len(labels)), dim=-1)
    usable = probabilities.isfinite().all(-1).tolist()
    found = []
    for name, row, places, is_usable in zip(names, values.tolist(), indices.tolist(), usable, strict=True):
        if not is_usable:
            found.append(Prediction(name, error="the model's answer is not a number"))
            continue
        guesses = tuple(Guess(str(labels[i]), i, value) for i, value in zip(places, row, strict=True))
        found.append(Prediction(name, guesses[0].label, guesses[0].index, guesses[0].probability, guesses))
    return found
