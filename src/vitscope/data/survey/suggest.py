"""What to do with the pictures, judged by the survey alone: size, channels, normalisation, strength of augmentation.

Pure data, each with its reason. Which model suits is for others to say.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vitscope.core.config import to_dict, updated
from vitscope.data.config import AugmentConfig, PreprocessConfig, augmentation, half_normalised
from vitscope.data.config.data import MOST_BYTES_ON_CPU
from vitscope.data.survey.survey import Survey

SIDES = (32, 64, 96, 128, 160, 224, 384)
"""Usual sides, for sets whose pictures differ in size."""
LARGE = 512
"""Only from this shorter side on is 384 suggested: it costs three times 224."""
FEW_PICTURES, MANY_PICTURES = 10_000, 100_000
"""The tuning guide's bounds between small, medium and large sets."""
DIGITS = {"zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"}


@dataclass(frozen=True)
class Suggestions:
    """How to start, and why."""

    preprocess: PreprocessConfig
    strength: str
    """Of augmentation: basic, medium or strong."""
    augment: AugmentConfig
    """What that strength means for these pictures."""
    loader: str
    """worker or device."""
    reasons: dict[str, str]
    """Setting -> why."""
    measured_mean: tuple[float, ...] | None
    measured_std: tuple[float, ...] | None

    def to_dict(self) -> dict[str, Any]:
        return {
            "preprocess": to_dict(self.preprocess),
            "strength": self.strength,
            "augment": to_dict(self.augment),
            "loader": self.loader,
            "reasons": dict(self.reasons),
            "measured_mean": None if self.measured_mean is None else list(self.measured_mean),
            "measured_std": None if self.measured_std is None else list(self.measured_std),
        }


FAR_MEAN, FLAT_STD = 0.3, 0.1
"""Pictures darker or brighter, or flatter than this are not what a normalisation by 0.5 expects."""


def suggest(survey: Survey, class_names: Sequence[str]) -> Suggestions:
    """For a survey in which at least one picture could be decoded."""
    reasons: dict[str, str] = {}
    img_size, reasons["img_size"] = _img_size(survey.sizes)
    all_grey = survey.grey == survey.good
    in_chans = 1 if all_grey else 3
    coloured = f"{survey.good - survey.grey:,} of {survey.good:,} pictures have colours"
    reasons["in_chans"] = "all pictures are grey" if all_grey else coloured
    reasons["normalisation"] = _about_normalisation(survey)
    images = sum(survey.counts["train"])
    strength, reasons["augment"] = _strength(images)
    augment = augmentation(strength, img_size)
    if all_grey and mirrored_means_something_else(class_names):
        augment = updated(augment, flip="none")
        reasons["flip"] = "the classes look like digits or letters, which a mirror makes into others"
    loader, reasons["loader"] = _loader(survey, img_size, in_chans)
    return Suggestions(
        preprocess=half_normalised(img_size, in_chans),
        strength=strength,
        augment=augment,
        loader=loader,
        reasons=reasons,
        measured_mean=survey.mean[:in_chans] if survey.mean else None,
        measured_std=survey.std[:in_chans] if survey.std else None,
    )


def mirrored_means_something_else(class_names: Sequence[str]) -> bool:
    """True where most classes are named like digits or letters: '7', 'seven', '7 - seven', 'digit_7', 'A'."""
    if len(class_names) < 2:
        return False
    return sum(map(_is_character, class_names)) > 0.8 * len(class_names)


def _is_character(name: str) -> bool:
    words = [word for word in re.split(r"[\W_]+", unicodedata.normalize("NFKC", name).lower()) if word]
    words = [word for word in words if word not in ("digit", "letter", "char", "upper", "lower")]
    return bool(words) and all(len(word) == 1 or word in DIGITS for word in words)


def _img_size(sizes: dict[tuple[int, int], int]) -> tuple[tuple[int, int], str]:
    if len(sizes) == 1:
        (height, width) = next(iter(sizes))
        if max(height, width) <= SIDES[-1]:
            return (height, width), f"every picture has {height} x {width} pixels"
    median = _median([(min(size), count) for size, count in sizes.items()])
    usual = SIDES if median >= LARGE else SIDES[:-1]
    side = min(usual, key=lambda usual_side: max(usual_side / median, median / usual_side))
    return (side, side), f"the shorter side is {median:,} pixels in the median: {side} is the usual size near it"


def _median(counted: list[tuple[int, int]]) -> int:
    """The lower median of values that come with their counts."""
    half, passed = sum(count for _, count in counted) / 2, 0
    for value, count in sorted(counted):
        passed += count
        if passed >= half:
            return value
    raise ValueError("expected at least one value")


def _strength(images: int) -> tuple[str, str]:
    if images < FEW_PICTURES:
        return "strong", f"{images:,} training pictures are few (under {FEW_PICTURES:,})"
    if images <= MANY_PICTURES:
        return "medium", f"{images:,} training pictures ({FEW_PICTURES:,} to {MANY_PICTURES:,})"
    return "basic", f"{images:,} training pictures are many (over {MANY_PICTURES:,})"


def _loader(survey: Survey, img_size: tuple[int, int], in_chans: int) -> tuple[str, str]:
    size = survey.total * img_size[0] * img_size[1] * in_chans
    pixels = f"{size / 1e9:,.1f} GB of pixels" if size >= 1e9 else f"{size / 1e6:,.1f} MB of pixels"
    if len(survey.sizes) > 1:
        return "worker", "the pictures have many sizes"
    if size > MOST_BYTES_ON_CPU:
        return "worker", f"{pixels} are too many to lie on the device"
    return "device", f"{pixels} fit on the device as a whole"


def _about_normalisation(survey: Survey) -> str:
    """A network takes care of a shift and a scale; only pictures that are nearly all black, white or flat need more."""
    said = "mean and std 0.5 bring pixels to -1 .. 1"
    if survey.mean is None or survey.std is None:
        return said
    if max(abs(mean - 0.5) for mean in survey.mean) <= FAR_MEAN and min(survey.std) >= FLAT_STD:
        return f"{said}; the measured ones would do as well"
    return f"{said}; the measured ones are far from it: try them as data.mean and data.std"
