"""Pictures and channels with nothing in them."""

from __future__ import annotations

from collections.abc import Callable

import torch

from doctor.conftest import pictures
from doctor.seen import causes, notes
from vitscope.doctor.checks.data.flat import flat_pictures
from vitscope.doctor.patient import Patient

Make = Callable[..., Patient]


def test_healthy_pictures(patient: Make) -> None:
    seen = flat_pictures(patient())
    assert causes(seen) == []
    assert notes(seen) == []


def test_all_of_one_value(patient: Make) -> None:
    images, labels = pictures()
    values = torch.rand(len(images), 3, 1, 1, generator=torch.Generator().manual_seed(0))
    seen = flat_pictures(patient(images=values.expand_as(images).contiguous(), labels=labels))
    assert causes(seen) == ["constant_images"]
    assert seen.findings[0].ends
    assert seen.findings[0].numbers["flat"] == 256


def test_shifted_ones_have_a_border(patient: Make) -> None:
    """Also after crops that pad; a square drawn in the middle of a plain ground is no such picture."""
    images, labels = pictures()
    values = torch.rand(len(images), 3, 1, 1, generator=torch.Generator().manual_seed(0))
    shifted = torch.zeros_like(images)
    shifted[:, :, 2:, :-3] = values
    seen = flat_pictures(patient(images=shifted, labels=labels))
    assert causes(seen) == ["constant_images"]
    assert seen.findings[0].numbers["flat"] == 256
    drawn = torch.zeros_like(images)
    drawn[:, :, 2:14, 2:14] = values
    assert causes(flat_pictures(patient(images=drawn, labels=labels))) == []


def test_a_few_are_a_note(patient: Make) -> None:
    images, labels = pictures()
    images[:3] = 0
    seen = flat_pictures(patient(images=images, labels=labels))
    assert causes(seen) == []
    assert notes(seen) == ["some_flat_pictures"]


def test_a_dead_channel_is_named(patient: Make) -> None:
    images, labels = pictures()
    images[:, 1] = -1
    seen = flat_pictures(patient(images=images, labels=labels))
    assert causes(seen) == ["constant_channel"]
    assert seen.findings[0].numbers["channels"] == "1"
