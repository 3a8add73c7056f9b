"""Pictures that were looked through, to go back to: those just found, or those a file of features names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitscope.core.config import to_dict
from vitscope.core.errors import UsageError, expected
from vitscope.data.decode import decode_image
from vitscope.infer.features.extract import reading_of
from vitscope.infer.features.features import Features
from vitscope.infer.features.pictures import Found, opened
from vitscope.infer.features.reading import Reading
from vitscope.infer.pictures import Given

if TYPE_CHECKING:
    from PIL.Image import Image

    from vitscope.infer.predictor import Predictor

SHRUNK = 512
"""Longest side of a picture that waits to be drawn."""


@dataclass(frozen=True)
class Looked:
    """Pictures by number; of a file of features, by row."""

    found: Found

    @classmethod
    def in_file(cls, features: Features) -> Looked:
        """Those a file names; whether they still lie there shows when they are drawn."""
        given = [Given(path, Path(path or "")) for path in features.paths]
        labels = None if features.labels is None else features.labels.tolist()
        return cls(Found(given, labels, features.classes, features.parts))

    def __len__(self) -> int:
        return len(self.found.given)

    def class_of(self, place: int) -> str | None:
        labels = self.found.labels
        return None if labels is None else self.found.classes[labels[place]]

    def picture(self, place: int) -> Image | None:
        """None where it cannot be had."""
        try:
            picture = decode_image(opened(self.found.given[place]).content)  # pyright: ignore[reportArgumentType]
        except Exception:  # a drawing with a gap is better than none
            return None
        picture.thumbnail((SHRUNK, SHRUNK))
        return picture

    def same_file(self, path: str | Path) -> list[int]:
        """Numbers of the pictures that are this very file."""
        try:
            wanted = Path(path).expanduser().resolve()
        except (OSError, RuntimeError):
            return []
        return [
            place
            for place, one in enumerate(self.found.given)
            if one.name is not None and Path(one.name).name == wanted.name and Path(one.name).resolve() == wanted
        ]


def reading_like(features: Features, predictor: Predictor) -> Reading:
    """The first of a file's features, from a model that must be the one they were taken with."""
    about = features.about
    now: dict[str, Any] = {"config": to_dict(predictor.model.config), "preprocessing": to_dict(predictor.preprocessing)}
    then: dict[str, Any] = {"config": about["model"]["config"], "preprocessing": about["preprocessing"]}
    sums = getattr(predictor.model.certificate, "sha256", None)
    if sums and about["model"]["sha256"]:
        now["weights"], then["weights"] = sorted(sums.values()), sorted(about["model"]["sha256"].values())
    for what, value in now.items():
        if value != then[what]:
            raise UsageError(
                f"the file's features were taken with another {what}",
                where=f"of {about['model']['source'] or 'a model'}",
                fix="give that model, or the pictures themselves",
            )
    told = next(iter(about["features"].values()))
    if len(told["shape"]) != 1:
        raise UsageError(
            expected("features", "one vector per picture", f"{told['tokens']}, {told['axes']}, in the file"),
            fix="give the pictures themselves, or a file with tokens 'pooled', 'cls' or 'mean'",
        )
    return reading_of(predictor, layers=told["layer"], tokens=told["tokens"], norm=told["norm"] == "after")
