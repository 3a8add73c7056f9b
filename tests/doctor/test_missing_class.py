"""A class that validation has and training never shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

import vitscope
from doctor.conftest import loader_of, pictures, small_vit
from doctor.seen import causes, notes
from vitscope.doctor.checks.data.balance import class_balance
from vitscope.doctor.finding import Seen
from vitscope.doctor.glance import glance
from vitscope.doctor.patient import Patient

Make = Callable[..., Patient]


def without(which: Callable[[Tensor], Tensor], count: int = 512) -> dict[str, Tensor]:
    images, labels = pictures(count)
    return {"images": images[which(labels)], "labels": labels[which(labels)]}


def no_2(labels: Tensor) -> Tensor:
    return labels != 2


def partly(patient: Patient, part: str) -> Patient:
    """As if there had been no time for the rest."""
    patient.glances[part] = replace(glance(patient, part), is_whole=False)
    return patient


def judged(patient: Patient) -> tuple[list[str], list[str]]:
    seen: Seen = class_balance(patient)
    assert seen.left_out is None
    return causes(seen), notes(seen)


def test_it_is_found_and_named(patient: Make) -> None:
    seen = class_balance(patient(**without(no_2)))
    assert causes(seen) == ["class_missing"]
    assert seen.findings[0].numbers == {"classes": "2", "missing": 1, "pictures": 32, "looked": 384}
    report = vitscope.check_up(
        small_vit(), loader_of(*without(no_2).values()), val_loader=loader_of(*pictures(128)), only=("class_balance",)
    )
    assert report.verdict == "unwell"
    assert report.findings[0].picture is not None


def test_all_classes_or_no_validation_is_fine(patient: Make) -> None:
    assert judged(patient()) == ([], [])
    assert judged(patient(**without(no_2), val_loader=None)) == ([], [])


def test_spare_outputs_are_another_matter(patient: Make) -> None:
    images, labels = pictures(1024)
    assert judged(patient(model=small_vit(num_classes=10), images=images, labels=labels)) == ([], [])


def of_2(count: int) -> DataLoader[Any]:
    images, labels = pictures(128, seed=1)
    kept = torch.cat([(labels != 2).nonzero().flatten(), (labels == 2).nonzero().flatten()[:count]])
    return loader_of(images[kept], labels[kept])


@pytest.mark.parametrize(("count", "expected"), [(1, "note"), (4, "note"), (16, "finding"), (0, "nothing")])
def test_a_few_in_validation_are_a_note(patient: Make, count: int, expected: str) -> None:
    found = judged(patient(**without(no_2), val_loader=of_2(count)))
    assert (
        found
        == {
            "note": ([], ["class_not_in_training"]),
            "finding": (["class_missing"], []),
            "nothing": ([], []),
        }[expected]
    )


def test_few_training_pictures_may_lack_it_by_chance(patient: Make) -> None:
    assert judged(patient(**without(no_2, 172), val_loader=of_2(16))) == ([], ["class_not_in_training"])


def test_a_glance_is_enough_where_order_is_drawn_by_lot(patient: Make) -> None:
    assert judged(partly(patient(**without(no_2, 640)), "train")) == (["class_missing"], [])
    assert judged(partly(patient(**without(no_2, 640)), "val")) == ([], ["class_not_in_training"])


def test_a_glance_of_another_order_is_a_note_and_of_a_sorted_one_nothing(patient: Make) -> None:
    images, labels = without(no_2, 640).values()
    in_order = patient(images=images, labels=labels)
    in_order.is_by_lot = False
    assert judged(partly(in_order, "train")) == ([], ["class_not_in_training"])
    order = labels.argsort()
    by_class = DataLoader(TensorDataset(images[order], labels[order]), 32)
    one = patient()
    one.is_by_lot = False
    one.train = lambda: ((x, y) for x, y in by_class)
    assert judged(one) == ([], ["class_not_in_training"]), "an epoch of it, to its end"
    assert judged(partly(one, "train")) == ([], [])
    by_hand = patient(images=images, labels=labels)
    by_hand.is_by_lot = False
    assert judged(by_hand) == (["class_missing"], []), "an epoch to its end, in no order"


def test_validation_of_another_task_is_a_note(patient: Make) -> None:
    only = patient(**without(lambda labels: labels < 2, 1024), model=small_vit(num_classes=8))
    images, labels = pictures(128, seed=1)
    only.val = lambda: iter([(images, labels + 2)])
    assert judged(only) == ([], ["class_not_in_training"])
