"""Labels and outputs must count the same classes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from doctor.conftest import CLASSES, loader_of, pictures, small_vit
from doctor.seen import causes, notes
from vitscope.doctor.checks.data.label_range import label_range
from vitscope.doctor.patient import Patient

Make = Callable[..., Patient]


def test_healthy_labels(patient: Make) -> None:
    seen = label_range(patient())
    assert causes(seen) == []
    assert notes(seen) == []
    assert (seen.measured["classes"], seen.measured["outputs"]) == (CLASSES, CLASSES)


def test_labels_from_one_to_k_are_off_by_one(patient: Make) -> None:
    images, labels = pictures()
    seen = label_range(patient(images=images, labels=labels + 1))
    assert causes(seen) == ["labels_off_by_one", "labels_out_of_range"]
    assert seen.findings[0].numbers["wrong"] == 64
    assert seen.findings[0].ends


def test_labels_from_one_with_an_output_to_spare(patient: Make) -> None:
    images, labels = pictures()
    val = loader_of(images[:64], labels[:64] + 1)
    seen = label_range(patient(small_vit(num_classes=CLASSES + 1), images, labels + 1, val_loader=val))
    assert causes(seen)[0] == "labels_off_by_one"


@pytest.mark.parametrize("outputs", [2, 10])
def test_outputs_that_are_not_the_classes(patient: Make, outputs: int) -> None:
    seen = label_range(patient(small_vit(num_classes=outputs)))
    assert causes(seen)[0] == "num_classes_wrong"
    assert seen.findings[0].numbers["outputs"] == outputs
    assert seen.findings[0].numbers["classes"] == CLASSES


def test_a_stray_label_is_out_of_range_only(patient: Make) -> None:
    images, labels = pictures()
    labels[5] = 255
    seen = label_range(patient(images=images, labels=labels))
    assert causes(seen) == ["labels_out_of_range"]
    assert seen.findings[0].numbers["wrong"] == 1


def test_what_cross_entropy_ignores_is_no_label(patient: Make) -> None:
    images, labels = pictures()
    labels[::7] = -100
    assert causes(label_range(patient(images=images, labels=labels))) == []


def test_a_class_missing_in_between_is_a_note(patient: Make) -> None:
    images, labels = pictures()
    kept = labels != 1
    val = loader_of(images[kept][:64], labels[kept][:64])
    seen = label_range(patient(images=images[kept], labels=labels[kept], val_loader=val))
    assert causes(seen) == []
    assert notes(seen) == ["classes_without_pictures"]


def test_values_are_no_classes(patient: Make) -> None:
    images, labels = pictures()
    one = patient(images=images, labels=torch.rand(len(labels)))
    assert label_range(one).left_out == "labels_are_no_classes"
