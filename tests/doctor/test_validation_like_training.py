"""Validation has the same colours as training, and the same pictures every time."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from doctor.conftest import loader_of, pictures
from doctor.seen import causes
from vitscope.doctor.checks.data.channels import channel_order
from vitscope.doctor.checks.data.steady import steady_validation
from vitscope.doctor.patient import Patient

Make = Callable[..., Patient]


def coloured(count: int, seed: int) -> tuple[Tensor, Tensor]:
    images, labels = pictures(count, seed=seed)
    tint = torch.tensor([0.3, 0.0, -0.4]).view(1, 3, 1, 1)
    return images + tint, labels


def test_healthy_colours(patient: Make) -> None:
    images, labels = coloured(256, 0)
    assert causes(channel_order(patient())) == []
    assert causes(channel_order(patient(images=images, labels=labels, val_loader=loader_of(*coloured(128, 1))))) == []


def test_red_and_blue_swapped(patient: Make) -> None:
    images, labels = coloured(256, 0)
    val_images, val_labels = coloured(128, 1)
    seen = channel_order(patient(images=images, labels=labels, val_loader=loader_of(val_images.flip(1), val_labels)))
    assert causes(seen) == ["channels_swapped"]
    assert seen.findings[0].numbers["order"] == "2, 1, 0"


def test_swapped_before_normalisation(patient: Make) -> None:
    """Each channel is normalised by the numbers of another one: only black and white give it away."""
    red, green, blue = (torch.rand(384, 1, 16, 16, generator=torch.Generator().manual_seed(s)) for s in range(3))
    photographs = torch.cat([red.sqrt(), green, blue.square()], 1)
    mean, std = photographs.mean((0, 2, 3), keepdim=True), photographs.std((0, 2, 3), keepdim=True)
    train, val = (photographs[:256] - mean) / std, (photographs[256:] - mean) / std
    swapped = (photographs[:256].flip(1) - mean) / std
    labels = torch.arange(384) % 4
    for images, expected in ((train, []), (swapped, ["channels_swapped"])):
        one = patient(images=images, labels=labels[:256], val_loader=loader_of(val, labels[256:]))
        assert causes(channel_order(one)) == expected


def test_another_colour_is_not_another_order(patient: Make) -> None:
    images, labels = coloured(256, 0)
    val_images, val_labels = coloured(128, 1)
    val_images[:, 0] += 2
    assert (
        causes(channel_order(patient(images=images, labels=labels, val_loader=loader_of(val_images, val_labels)))) == []
    )


def test_a_steady_validation_in_any_order(patient: Make) -> None:
    one = patient()  # shuffled anew each time
    assert causes(steady_validation(one)) == []
    assert steady_validation(one).measured["changed"] == 0


def test_validation_that_is_varied(patient: Make) -> None:
    images, labels = pictures(128, seed=1)
    generator = torch.Generator().manual_seed(0)
    one = patient()

    def varied() -> Iterator[tuple[Tensor, Tensor]]:
        turned = torch.rand(len(images), generator=generator) < 0.5
        yield torch.where(turned.view(-1, 1, 1, 1), images.flip(-1), images), labels

    one.val = varied
    seen = steady_validation(one)
    assert causes(seen) == ["validation_augmented"]
    assert 0.3 < seen.findings[0].numbers["share"] < 0.7
