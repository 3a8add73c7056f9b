"""Are pixels of the size a network starts well from, and that loaded weights know?"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from vitscope.data.config import PreprocessConfig
from vitscope.doctor.finding import Change, Finding, Note, Seen
from vitscope.doctor.glance import Glance, glance
from vitscope.doctor.patient import Patient
from vitscope.doctor.thresholds.data import (
    EXPECTED_MEAN,
    EXPECTED_STD,
    FAR_MEAN,
    NARROW_STD,
    OTHER_MEAN,
    OTHER_STD,
    WHOLE_RANGE,
    WIDE_STD,
)


def scale_of_pixels(patient: Patient) -> Seen:
    train = glance(patient)
    mean, std = _together(train)
    numbers: dict[str, Any] = {
        "low": train.low,
        "high": train.high,
        "mean": _words(mean),
        "std": _words(std),
        "far": float(mean.abs().max()),
        "wide": float(std.max()),
    }
    seen = Seen(measured={"low": train.low, "high": train.high, "mean": mean.tolist(), "std": std.tolist()})
    changes = _usual(patient)
    if train.low >= 0 and train.high > WHOLE_RANGE:
        seen.findings.append(Finding("input_not_normalised", 0.96, numbers, changes))
        return seen
    is_far = bool((mean.abs() > FAR_MEAN).any()) or bool((std > WIDE_STD).any())
    is_narrow = bool((std < NARROW_STD).all()) and bool((std > 0).any())
    if is_far or is_narrow:
        seen.findings.append(Finding("normalisation_wrong", 0.9, numbers, changes))
        if is_far and train.high - train.low > WHOLE_RANGE * WIDE_STD:  # bytes, normalised as if they went from 0 to 1
            seen.findings.append(Finding("input_not_normalised", 0.7, numbers, changes))
    elif train.low >= 0 and train.high > 1.5:
        seen.notes.append(Note("pixels_not_centred", numbers))
    seen.findings += _against_weights(patient)
    if patient.val is not None and not seen.findings:
        seen.findings += _against_validation(mean, std, glance(patient, "val"))
    return seen


def _together(looked: Glance) -> tuple[Tensor, Tensor]:
    """Mean and spread of each channel over all pixels of all pictures."""
    mean = looked.mean.double().mean(0)
    spread = (looked.std.double() ** 2 + (looked.mean.double() - mean) ** 2).mean(0).sqrt()
    return mean, spread


def _against_weights(patient: Patient) -> list[Finding]:
    used, expects = patient.preprocess, patient.expects
    if used is None or expects is None or len(used.mean) != len(expects.mean):
        return []
    off = max(abs(one - other) for one, other in zip(used.mean, expects.mean, strict=True))
    ratio = max(max(one / other, other / one) for one, other in zip(used.std, expects.std, strict=True))
    if off <= EXPECTED_MEAN and ratio <= EXPECTED_STD:
        return []
    numbers = {
        "used_mean": _words(used.mean),
        "used_std": _words(used.std),
        "mean": _words(expects.mean),
        "std": _words(expects.std),
    }
    changes = (Change("data.mean", expects.mean), Change("data.std", expects.std))
    return [Finding("normalisation_not_that_of_weights", 0.85, numbers, changes)]


def _against_validation(mean: Tensor, std: Tensor, val: Glance) -> list[Finding]:
    other_mean, other_std = _together(val)
    both = ((std + other_std) / 2).clamp(min=1e-12)
    off = float(((mean - other_mean).abs() / both).max())
    ratios = std.clamp(min=1e-12) / other_std.clamp(min=1e-12)
    ratio = float(ratios.maximum(1 / ratios).max())
    if off <= OTHER_MEAN and ratio <= OTHER_STD:
        return []
    numbers = {
        "mean": _words(mean),
        "std": _words(std),
        "other_mean": _words(other_mean),
        "other_std": _words(other_std),
    }
    return [Finding("validation_normalised_otherwise", 0.8, numbers)]


def _usual(patient: Patient) -> tuple[Change, ...]:
    """Of a run of ours: the normalisation its weights expect, or the plain one."""
    if patient.settings is None:
        return ()
    expects: PreprocessConfig | None = patient.expects
    if expects is not None:
        return (Change("data.mean", expects.mean), Change("data.std", expects.std))
    return (Change("data.normalisation", "half"), Change("data.mean", None), Change("data.std", None))


def _words(values: Tensor | tuple[float, ...]) -> str:
    listed = values.tolist() if isinstance(values, Tensor) else list(values)
    shown = ", ".join(f"{value:.3g}" for value in listed[:4])
    return shown + (", ..." if len(listed) > 4 else "")
