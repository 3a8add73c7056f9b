"""The scale of pixels: bytes, wrong numbers, other numbers than the weights or validation have."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from doctor.conftest import loader_of, pictures
from doctor.seen import causes
from vitscope.data.config import NORMALISATIONS, PreprocessConfig
from vitscope.doctor.checks.data.scale import scale_of_pixels
from vitscope.doctor.patient import Patient

Make = Callable[..., Patient]


def from_0_to_1(count: int = 256, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    images, labels = pictures(count, seed=seed)
    return (images / 8 + 0.4).clamp(0, 1), labels


def both(patient: Make, change: Callable[[torch.Tensor], torch.Tensor]) -> Patient:
    images, labels = from_0_to_1()
    other_images, other_labels = from_0_to_1(128, 1)
    return patient(images=change(images), labels=labels, val_loader=loader_of(change(other_images), other_labels))


@pytest.mark.parametrize("name", ["none", "half", "imagenet", "mnist"])
def test_usual_normalisations(patient: Make, name: str) -> None:
    mean, std = ((0.0,), (1.0,)) if name == "none" else NORMALISATIONS[name]
    shape = (1, -1, 1, 1)
    one = both(patient, lambda images: (images - torch.tensor(mean).view(shape)) / torch.tensor(std).view(shape))
    assert causes(scale_of_pixels(one)) == []


@pytest.mark.parametrize("name", ["half", "imagenet", "mnist"])
@pytest.mark.parametrize("value", [0.0, 1.0])
def test_the_brightest_and_darkest_sets_are_healthy(patient: Make, name: str, value: float) -> None:
    mean, std = (torch.tensor(numbers).view(1, -1, 1, 1) for numbers in NORMALISATIONS[name])
    one = both(patient, lambda images: ((images * 0.2 + 0.8 * value) - mean) / std)
    assert causes(scale_of_pixels(one)) == []


def test_bytes(patient: Make) -> None:
    seen = scale_of_pixels(both(patient, lambda images: images * 255))
    assert causes(seen) == ["input_not_normalised"]
    assert seen.findings[0].numbers["high"] > 200


def test_bytes_normalised_as_if_they_were_shares(patient: Make) -> None:
    found = causes(scale_of_pixels(both(patient, lambda images: (images * 255 - 0.485) / 0.229)))
    assert found == ["normalisation_wrong", "input_not_normalised"]


@pytest.mark.parametrize(("mean", "std"), [(0.9, 0.05), (-2.0, 0.5), (0.5, 0.02), (0.0, 255.0)])
def test_a_mean_and_std_of_something_else(patient: Make, mean: float, std: float) -> None:
    assert causes(scale_of_pixels(both(patient, lambda images: (images - mean) / std)))[0] == "normalisation_wrong"


def test_other_numbers_than_the_weights_know(patient: Make) -> None:
    one = both(patient, lambda images: (images - 0.5) / 0.5)
    one.preprocess = PreprocessConfig(img_size=(16, 16))
    one.expects = PreprocessConfig(img_size=(16, 16))
    assert causes(scale_of_pixels(one)) == []
    mean, std = NORMALISATIONS["imagenet"]
    one.expects = PreprocessConfig(img_size=(16, 16), mean=mean, std=std)
    assert causes(scale_of_pixels(one)) == ["normalisation_not_that_of_weights"]


def test_other_numbers_in_validation(patient: Make) -> None:
    images, labels = from_0_to_1()
    val_images, val_labels = from_0_to_1(128, 1)
    one = patient(images=(images - 0.5) / 0.25, labels=labels, val_loader=loader_of(val_images, val_labels))
    assert causes(scale_of_pixels(one)) == ["validation_normalised_otherwise"]
