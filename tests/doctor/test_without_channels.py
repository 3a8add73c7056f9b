"""Batches (B, H, W), as grey pictures that a recurrent network reads row by row: looked at as one channel, and given to
the model as they came."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import vitscope
from doctor.conftest import CLASSES, loader_of, pictures, small_vit
from doctor.seen import causes
from vitscope.doctor.checks.forward.loss_at_start import loss_at_start
from vitscope.doctor.checks.forward.position import position
from vitscope.doctor.module_patient import module_patient


class Rows(nn.Module):
    """Reads a row at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.read = nn.GRU(16, 32, batch_first=True)
        self.head = nn.Linear(32, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        assert images.ndim == 3, "the model is given what the loader gives"
        return self.head(self.read(images)[0].mean(1))


class Unsqueezed(nn.Module):
    def __init__(self, *, gain: float = 1.0, **settings: Any) -> None:
        super().__init__()
        self.vit, self.gain = small_vit(in_chans=1, **settings), gain

    def forward(self, images: Tensor) -> Tensor:
        return self.gain * self.vit(images[:, None])


def grey(count: int = 256, *, seed: int = 0) -> tuple[Tensor, Tensor]:
    images, labels = pictures(count, seed=seed)
    return images.mean(1), labels


def test_a_network_that_reads_rows_is_healthy() -> None:
    torch.manual_seed(0)
    model = Rows()
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    images, labels = grey()
    report = vitscope.check_up(
        model,
        loader_of(images / images.std(), labels),
        val_loader=loader_of(*grey(128, seed=1)),
        optimizer=optimizer,
        only=("data", "settings", "forward"),
    )
    assert [(asked.check.name, asked.failed) for asked in report.asked if asked.failed] == []
    assert report.verdict == "healthy"


def test_what_is_wrong_with_the_pixels_is_found() -> None:
    images, labels = grey()
    images[3, 2, 2] = torch.nan
    report = vitscope.check_up(Rows(), loader_of(images, labels), only=("data",))
    assert [finding.cause for finding in report.findings] == ["nan_in_data"]


def test_patches_are_moved_as_of_any_picture() -> None:
    patient = module_patient(Unsqueezed(), loader_of(*grey()))
    assert patient.facts.patch_size == (4, 4)
    seen = position(patient)
    assert (causes(seen), seen.left_out) == ([], None)
    assert causes(position(module_patient(Unsqueezed(position="none"), loader_of(*grey())))) == [
        "no_position_information"
    ]


def test_a_loss_far_too_high_is_compared_with_that_of_standard_pixels() -> None:
    images, labels = grey()
    assert causes(loss_at_start(module_patient(Unsqueezed(gain=1000.0), loader_of(images, labels)))) == [
        "loss_wrong_at_start"
    ]
