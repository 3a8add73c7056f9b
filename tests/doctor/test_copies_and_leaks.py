"""Pictures that are there twice, in training or in both parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from doctor.conftest import loader_of, pictures, small_vit
from doctor.seen import causes, notes
from vitscope.doctor.checks.data.copies import copies
from vitscope.doctor.checks.data.leaks import leaks
from vitscope.doctor.glance import glance
from vitscope.doctor.module_patient import module_patient
from vitscope.doctor.patient import Patient

Make = Callable[..., Patient]


def test_healthy_pictures(patient: Make) -> None:
    one = patient()
    assert causes(copies(one)) == []
    assert causes(leaks(one)) == []
    assert notes(leaks(one)) == []


def test_four_pictures_again_and_again(patient: Make) -> None:
    images, labels = pictures()
    seen = copies(patient(images=images[:4].repeat(64, 1, 1, 1), labels=labels[:4].repeat(64)))
    assert causes(seen) == ["duplicate_only_data"]
    assert (seen.findings[0].numbers["distinct"], seen.findings[0].numbers["times"]) == (4, 64)


def test_pictures_shown_three_times_are_no_fault(patient: Make) -> None:
    images, labels = pictures()
    assert causes(copies(patient(images=images[:80].repeat(3, 1, 1, 1), labels=labels[:80].repeat(3)))) == []


def test_validation_in_training(patient: Make) -> None:
    images, labels = pictures()
    val_images, val_labels = pictures(128, seed=1)
    together = patient(images=torch.cat([images, val_images]), labels=torch.cat([labels, val_labels]))
    seen = leaks(together)
    assert causes(seen) == ["validation_leaked"]
    assert seen.findings[0].numbers == {"found": 128, "share": 1.0, "pictures": 128, "kind": "exact"}


def test_near_copies_leak_too(patient: Make) -> None:
    images, labels = pictures()
    noise = torch.randn(images[:64].shape, generator=torch.Generator().manual_seed(3)) * 0.02
    one = patient(images=images, labels=labels, val_loader=loader_of(images[:64] + noise, labels[:64]))
    seen = leaks(one)
    assert causes(seen) == ["validation_leaked"]
    assert seen.findings[0].numbers["kind"] == "near"


class Varied(torch.utils.data.Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Shifted and mirrored, so that no two pictures are equal, nor look alike pixel by pixel."""

    def __init__(self, rows: torch.Tensor, classes: torch.Tensor) -> None:
        self.rows, self.classes = rows, classes

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        down, across, mirrored = torch.randint(0, 5, (3,)).tolist()
        padded = torch.nn.functional.pad(self.rows[index], (2, 2, 2, 2))[:, down : down + 16, across : across + 16]
        return padded.flip(-1) if mirrored % 2 else padded, self.classes[index]


def varied(images: torch.Tensor, labels: torch.Tensor, *val: torch.Tensor) -> Patient:
    loader = torch.utils.data.DataLoader(Varied(images, labels), 32)
    return module_patient(small_vit(), loader, val_loader=loader_of(*val) if val else None)


def test_copies_that_training_shifts_and_mirrors() -> None:
    images, labels = pictures()
    val = pictures(128, seed=1)
    both = varied(torch.cat([images, val[0]]), torch.cat([labels, val[1]]), *val)
    assert causes(leaks(both)) == ["validation_leaked"]
    assert causes(leaks(varied(images, labels, *val))) == []


@pytest.mark.parametrize("different", [4, 10, 20])
def test_a_few_pictures_shifted_and_mirrored_again_and_again(different: int) -> None:
    images, labels = pictures()
    which = torch.arange(512) % different
    seen = copies(varied(images[which], labels[which]))
    assert causes(seen) == ["duplicate_only_data"]
    assert abs(seen.findings[0].numbers["distinct"] - different) <= 0.3 * different


def test_pictures_shown_shifted_three_times_are_no_fault() -> None:
    images, labels = pictures()
    which = torch.arange(512) // 3
    seen = copies(varied(images[which], labels[which]))
    assert causes(seen) == []
    assert seen.measured["distinct"] > 100
    assert causes(copies(varied(images, labels))) == []


def test_one_copy_is_a_note(patient: Make) -> None:
    images, labels = pictures()
    val_images, val_labels = pictures(128, seed=1)
    val_images[0] = images[0]
    seen = leaks(patient(images=images, labels=labels, val_loader=loader_of(val_images, val_labels)))
    assert causes(seen) == []
    assert notes(seen) == ["few_leaks"]


def test_of_few_validation_pictures_a_copy_may_be_chance_or_not(patient: Make) -> None:
    """Two of 16 are more than changes nothing, and less than shows a leak."""
    images, labels = pictures()
    val_images, val_labels = pictures(16, seed=1)
    val_images[:2] = images[:2]
    seen = leaks(patient(images=images, labels=labels, val_loader=loader_of(val_images, val_labels)))
    assert (causes(seen), notes(seen)) == ([], ["leaks_unclear"])
    assert seen.notes[0].numbers == {"found": 2, "share": 0.125, "pictures": 16, "kind": "exact"}


def test_copies_among_the_first_pictures_say_nothing_of_the_others(patient: Make) -> None:
    """Where the look at training ended before its end, more copies may be behind it."""
    images, labels = pictures()
    val_images, val_labels = pictures(128, seed=1)
    val_images[0] = images[0]
    one = patient(images=images, labels=labels, val_loader=loader_of(val_images, val_labels))
    one.glances["train"] = replace(glance(one), is_whole=False)
    assert notes(leaks(one)) == ["leaks_unclear"]


def test_without_validation_nothing_is_said(patient: Make) -> None:
    assert leaks(patient(val_loader=None)).left_out == "no_validation_part"
