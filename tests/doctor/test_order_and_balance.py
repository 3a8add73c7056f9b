"""In which order classes come, and how many pictures each has."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from doctor.conftest import pictures
from doctor.seen import causes, notes
from vitscope.doctor.checks.data.balance import class_balance
from vitscope.doctor.checks.data.order import order_of_classes
from vitscope.doctor.module_patient import module_patient
from vitscope.doctor.patient import Patient

Make = Callable[..., Patient]


def in_order(images: torch.Tensor, labels: torch.Tensor, batch: int, model: torch.nn.Module) -> Patient:
    return module_patient(model, DataLoader(TensorDataset(images, labels), batch))


def test_healthy_pictures(patient: Make) -> None:
    one = patient()
    assert causes(order_of_classes(one)) == []
    assert causes(class_balance(one)) == []
    assert notes(class_balance(one)) == []
    assert class_balance(one).picture is not None


@pytest.mark.parametrize("batch", [4, 32, 256])
def test_sorted_by_class(patient: Make, batch: int) -> None:
    images, labels = pictures()
    order = labels.argsort()
    seen = order_of_classes(in_order(images[order], labels[order], batch, patient().model))
    assert causes(seen) == ["data_sorted"]
    assert seen.findings[0].picture is not None
    assert seen.findings[0].numbers["met"] < 2


def test_repeated_pictures_side_by_side_are_shuffled_enough(patient: Make) -> None:
    images, labels = pictures()
    order = torch.randperm(256, generator=torch.Generator().manual_seed(0)).repeat_interleave(3)
    assert causes(order_of_classes(in_order(images[order], labels[order], 32, patient().model))) == []


def test_ninety_nine_to_one(patient: Make) -> None:
    images, _labels = pictures(400)
    rare = torch.arange(400) % 100 == 0
    seen = class_balance(patient(images=images, labels=rare.long(), val_loader=None))
    assert causes(seen) == ["class_imbalance"]
    assert seen.findings[0].numbers["ratio"] == 99
    assert seen.findings[0].numbers["rare"] == "1"


def test_ten_to_one_is_a_note(patient: Make) -> None:
    images, _labels = pictures(440)
    seen = class_balance(patient(images=images, labels=(torch.arange(440) % 11 == 0).long(), val_loader=None))
    assert causes(seen) == []
    assert notes(seen) == ["classes_unequal"]


def test_a_loss_that_weighs_classes_makes_up_for_them(patient: Make) -> None:
    images, _ = pictures()
    labels = (torch.arange(256) < 2).long()
    weighed = torch.nn.CrossEntropyLoss(weight=torch.tensor([1.0, 64.0, 1.0, 1.0]))
    for loss, expected in ((None, ["class_imbalance"]), (weighed, [])):
        assert causes(class_balance(patient(images=images, labels=labels, loss=loss, val_loader=None))) == expected
