"""Labels that are wrong are told from labels that are hard."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from doctor.conftest import loader_of, pictures, small_vit
from doctor.seen import causes
from vitscope.core.errors import VitscopeError
from vitscope.data.dataset import open_dataset
from vitscope.doctor.checks.data.amount import amount_of_pictures
from vitscope.doctor.checks.data.plain import plain_pictures
from vitscope.doctor.checks.data.truth import truth_of_labels
from vitscope.doctor.patient import Patient

Make = Callable[..., Patient]
SETS = ["digits", "shapes", *(pytest.param(name, marks=pytest.mark.slow) for name in ("mnist", "cifar10"))]


def drawn_anew(labels: Tensor, share: float, seed: int = 0) -> Tensor:
    """The labels, this share of them exchanged among each other."""
    generator = torch.Generator().manual_seed(seed)
    chosen = (torch.rand(len(labels), generator=generator) < share).nonzero()[:, 0]
    changed = labels.clone()
    changed[chosen] = labels[chosen[torch.randperm(len(chosen), generator=generator)]]
    return changed


def real(patient: Make, name: str, share: float, val_share: float = 0.0) -> Patient:
    try:
        dataset = open_dataset(name)
    except VitscopeError as error:
        pytest.skip(f"{name} is not here: {error.what}")
    images, labels = plain_pictures(dataset, "train", 2048, seconds=600)
    val_images, val_labels = plain_pictures(dataset, "val", 512, seconds=600)
    val = loader_of(val_images / 127.5 - 1, drawn_anew(val_labels, val_share, 1))
    model = small_vit(img_size=32, num_classes=10)
    return patient(model, images / 127.5 - 1, drawn_anew(labels, share), val_loader=val)


@pytest.mark.parametrize("name", SETS)
def test_healthy_sets(patient: Make, name: str) -> None:
    assert causes(truth_of_labels(real(patient, name, 0.0))) == []


@pytest.mark.parametrize("name", SETS)
def test_a_third_wrong_in_all_parts(patient: Make, name: str) -> None:
    seen = truth_of_labels(real(patient, name, 0.3, 0.3))
    assert causes(seen) == ["label_noise"]
    assert 0.15 < seen.findings[0].numbers["noise"] < 0.6


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("val_share", [0.0, 1.0])
def test_all_shuffled(patient: Make, name: str, val_share: float) -> None:
    seen = truth_of_labels(real(patient, name, 1.0, val_share))
    assert causes(seen) == ["labels_shuffled"]
    assert seen.findings[0].ends == (val_share == 0)


@pytest.mark.parametrize(("count", "confidence"), [(300, 0.4), (600, 0.75)])
def test_at_chance_few_pictures_are_no_more_than_a_sign(patient: Make, count: int, confidence: float) -> None:
    """Labels that are right may be there too, where pictures are few and hard; without validation nothing is proven."""
    images, labels = plain_pictures(open_dataset("digits"), "train", count, seconds=600)
    model = small_vit(img_size=32, num_classes=10)
    seen = truth_of_labels(patient(model, images / 127.5 - 1, drawn_anew(labels, 1.0)))
    assert [(found.cause, found.confidence) for found in seen.findings] == [("labels_shuffled", confidence)]


def test_training_labels_one_class_further_than_validation(patient: Make) -> None:
    one = real(patient, "digits", 0.0)
    images, labels = open_digits()
    shifted = patient(small_vit(img_size=32, num_classes=10), images, (labels + 1) % 10)
    shifted.val = one.val
    assert causes(truth_of_labels(shifted)) == ["labels_off_by_one"]


def with_validation(patient: Make, images: Tensor, labels: Tensor) -> Patient:
    return patient(small_vit(img_size=32, num_classes=10), *open_digits(), val_loader=loader_of(images, labels))


def test_validation_that_does_not_belong_to_training(patient: Make) -> None:
    images, labels = plain_pictures(open_dataset("digits"), "val", 512, seconds=600)
    images = images / 127.5 - 1
    order = torch.tensor([3, 0, 1, 2, 7, 4, 5, 6, 9, 8])
    assert causes(truth_of_labels(with_validation(patient, images, order[labels]))) == ["validation_classes_renamed"]
    for other, wrong in ((images, drawn_anew(labels, 1.0)), (images.transpose(2, 3), labels), (-images, labels)):
        seen = truth_of_labels(with_validation(patient, other, wrong))
        assert causes(seen) == ["validation_unlike_training"]
        assert seen.findings[0].picture is not None


def open_digits() -> tuple[Tensor, Tensor]:
    images, labels = plain_pictures(open_dataset("digits"), "train", 2048, seconds=600)
    return images / 127.5 - 1, labels


def test_too_few_say_nothing(patient: Make) -> None:
    images, labels = pictures(40)
    assert truth_of_labels(patient(images=images, labels=labels)).left_out == "too_few_to_judge"


def test_few_pictures_of_a_hard_set_are_too_few(patient: Make) -> None:
    dataset = open_dataset("shapes")
    images, labels = plain_pictures(dataset, "train", 40, seconds=600)
    val_images, val_labels = plain_pictures(dataset, "val", 300, seconds=600)
    val = loader_of(val_images / 127.5 - 1, val_labels)
    model = small_vit(img_size=32, num_classes=10)
    seen = amount_of_pictures(patient(model, images / 127.5 - 1, labels, val_loader=val))
    assert causes(seen) == ["too_few_images"]
    assert seen.findings[0].numbers["per_class"] == 4


def test_few_pictures_of_an_easy_set_are_a_note(patient: Make) -> None:
    images, labels = pictures(48)
    seen = amount_of_pictures(patient(images=images, labels=labels))
    assert causes(seen) == []
    assert [note.name for note in seen.notes] == ["few_pictures"]
    assert causes(amount_of_pictures(patient())) == []


def test_three_pictures_of_a_class_are_too_few_of_any_set(patient: Make) -> None:
    images, labels = open_digits()
    few = torch.cat([(labels == one).nonzero().flatten()[:3] for one in range(10)])
    val_images, val_labels = plain_pictures(open_dataset("digits"), "val", 200, seconds=600)
    val = loader_of(val_images / 127.5 - 1, val_labels)
    one = patient(small_vit(img_size=32, num_classes=10), images[few], labels[few], val_loader=val)
    assert causes(amount_of_pictures(one)) == ["too_few_images"]
