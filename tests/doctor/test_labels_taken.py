"""Labels whose form the loss does not take, and those it does. Whole numbers are examined all the same."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import vitscope
from doctor.conftest import CLASSES, loader_of, pictures, small_vit
from doctor.seen import causes
from vitscope.doctor.checks.forward.labels_taken import labels_taken
from vitscope.doctor.finding import Finding, Seen
from vitscope.doctor.patient import Patient, class_numbers

Make = Callable[..., Patient]


def seen(patient: Make, change: Callable[[Tensor], Tensor], **given: Any) -> Seen:
    images, labels = pictures()
    return labels_taken(patient(images=images, labels=change(labels), **given))


def one_hot(labels: Tensor) -> Tensor:
    return F.one_hot(labels, CLASSES)


@pytest.mark.parametrize(
    ("change", "form"),
    [
        (Tensor.int, "labels.long()"),
        (Tensor.short, "labels.long()"),
        (Tensor.float, "labels.long()"),
        (Tensor.double, "labels.long()"),
        (lambda labels: labels.unsqueeze(1), "labels.squeeze(1)"),
        (lambda labels: labels.unsqueeze(1).float(), "labels.squeeze(1).long()"),
        (one_hot, "labels.float()"),
    ],
)
def test_a_form_that_cross_entropy_refuses(patient: Make, change: Callable[[Tensor], Tensor], form: str) -> None:
    looked = seen(patient, change)
    assert causes(looked) == ["labels_not_taken"]
    (found,) = looked.findings
    assert (found.numbers["form"], found.confidence) == (form, 0.97)
    assert found.numbers["dtype"] == str(change(pictures(1)[1]).dtype).removeprefix("torch.")


@pytest.mark.parametrize("change", [Tensor.long, Tensor.byte, lambda labels: one_hot(labels).float()])
def test_a_form_that_cross_entropy_takes(patient: Make, change: Callable[[Tensor], Tensor]) -> None:
    assert causes(seen(patient, change)) == []


def test_a_loss_of_one_output_wants_a_column_of_floats(patient: Make) -> None:
    def halved(labels: Tensor) -> Tensor:
        return labels % 2

    one_output = partial(patient, model=small_vit(num_classes=1), loss=F.binary_cross_entropy_with_logits)
    (found,) = seen(one_output, halved).findings
    assert found.numbers["form"] == "labels.unsqueeze(1).float()"
    assert causes(seen(one_output, lambda labels: halved(labels).unsqueeze(1).float())) == []


def test_a_step_that_brings_them_into_form_is_healthy(patient: Make) -> None:
    model = small_vit()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)

    def step(images: Tensor, labels: Tensor, *, is_long: bool) -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels.long() if is_long else labels).backward()
        optimizer.step()

    for is_long, expected in ((True, []), (False, ["labels_not_taken"])):
        own = partial(step, is_long=is_long)
        assert causes(seen(partial(patient, model=model, optimizer=optimizer), Tensor.int, step=own)) == expected


def test_whole_numbers_in_floats_are_classes_where_loss_and_step_take_them() -> None:
    model, (images, labels) = small_vit(), pictures()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)

    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(logits, labels.long())

    def step(images: Tensor, labels: Tensor) -> Tensor:
        optimizer.zero_grad()
        found = loss(model(images), labels)
        found.backward()
        optimizer.step()
        return found

    own = ("room_for_logits", "overfit", "first_steps")
    loader = loader_of(images, labels.double())
    report = vitscope.check_up(model, loader, loss=loss, optimizer=optimizer, step=step, only=own)
    assert [(one.check.name, one.failed) for one in report.asked] == [(name, None) for name in own]
    assert report.verdict == "healthy"


def test_numbers_that_are_no_classes_are_not_cut_to_whole_ones() -> None:
    assert class_numbers(torch.tensor([1.5, 2.0])).is_floating_point()


def test_what_is_refused_whatever_its_form_is_not_blamed_on_it(patient: Make) -> None:
    def never(logits: Tensor, labels: Tensor) -> Tensor:
        raise ValueError("no")

    assert causes(seen(patient, Tensor.int, loss=never)) == []


@pytest.mark.parametrize("change", [Tensor.long, Tensor.int])
def test_a_step_that_fails_once_is_not_blamed_on_the_labels(patient: Make, change: Callable[[Tensor], Tensor]) -> None:
    model, calls = small_vit(), [0]
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)

    def step(images: Tensor, labels: Tensor) -> None:
        calls[0] += 1
        if calls[0] == 1:
            raise ConnectionError("connection refused")
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels.long()).backward()
        optimizer.step()

    assert causes(seen(partial(patient, model=model, optimizer=optimizer), change, step=step)) == []


def test_a_form_that_changes_nothing_is_not_tried(patient: Make) -> None:
    asked: list[Tensor] = []

    def never(logits: Tensor, labels: Tensor) -> Tensor:
        asked.append(labels)
        raise ValueError("no")

    assert causes(seen(patient, Tensor.long, loss=never)) == []
    assert [(one.dtype, one.ndim) for one in asked] == [(torch.int64, 1), (torch.float32, 1), (torch.float32, 2)]


def found(change: Callable[[Tensor], Tensor], **given: Any) -> tuple[list[Finding], list[str]]:
    model, (images, labels) = small_vit(), pictures()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    report = vitscope.check_up(model, loader_of(images, change(labels)), optimizer=optimizer, quick=True, **given)
    return report.findings, [one.check.name for one in report.asked if one.failed is not None]


@pytest.mark.parametrize("change", [Tensor.int, Tensor.float, lambda labels: labels.unsqueeze(1)])
def test_a_whole_examination_names_the_form_alone_and_nothing_fails(change: Callable[[Tensor], Tensor]) -> None:
    findings, failed = found(change)
    assert [one.cause for one in findings] == ["labels_not_taken"]
    assert failed == []


def test_bytes_are_taken_and_examined_as_classes() -> None:
    assert found(Tensor.byte) == ([], [])
