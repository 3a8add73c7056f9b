"""A pixel that is no number is found and its picture named."""

from __future__ import annotations

from collections.abc import Callable

from doctor.conftest import loader_of, pictures
from doctor.seen import causes
from vitscope.doctor.checks.data.finite import finite_pixels
from vitscope.doctor.patient import Patient

Make = Callable[..., Patient]


def test_healthy_pictures(patient: Make) -> None:
    seen = finite_pixels(patient())
    assert causes(seen) == []
    assert seen.measured["train_pictures"] == 256


def test_the_row_is_named(patient: Make) -> None:
    images, labels = pictures()
    images[17, 0, 3, 3] = float("nan")
    images[200, 2, 0, 0] = float("inf")
    seen = finite_pixels(patient(images=images, labels=labels))
    assert causes(seen) == ["nan_in_data"]
    numbers = seen.findings[0].numbers
    assert numbers["bad"] == 2
    assert numbers["which"] in ("dataset[17]", "dataset[200]")
    assert seen.findings[0].ends
    assert seen.findings[0].confidence == 1.0


def test_where_rows_cannot_be_asked_its_place_in_the_epoch_is_named(patient: Make) -> None:
    images, labels = pictures(64)
    images[40, 0, 0, 0] = float("nan")
    one = patient()
    one.rows = None
    one.train = lambda: iter([(images[:32], labels[:32]), (images[32:], labels[32:])])
    assert finite_pixels(one).findings[0].numbers["which"] == "batch 1, [8]"


def test_validation_counts_too(patient: Make) -> None:
    images, labels = pictures(64, seed=1)
    images[3] = float("inf")
    seen = finite_pixels(patient(val_loader=loader_of(images, labels)))
    assert seen.findings[0].numbers["part"] == "validation"
