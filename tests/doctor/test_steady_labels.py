"""Labels that change from one reading to the next, beside pictures that are varied, mixed or drawn on purpose."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from doctor.conftest import CLASSES, pictures, small_vit
from doctor.seen import causes
from vitscope.doctor.checks.data.steady_labels import steady_labels
from vitscope.doctor.finding import Seen
from vitscope.doctor.module_patient import module_patient
from vitscope.doctor.thresholds.whole import SURE_ENOUGH

Read = Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]]


class Rows(Dataset[tuple[Tensor, Tensor]]):
    def __init__(self, read: Read) -> None:
        self.images, self.labels = pictures()
        # No two of the same brightness: real pictures differ by more than where they are bright.
        self.images = self.images + torch.linspace(-2, 2, len(self.images))[torch.randperm(256)].view(-1, 1, 1, 1)
        self.read = read

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
        return self.read(self.images, self.labels, number)


def any_of(count: int) -> int:
    return int(torch.randint(count, ()))


def varied(image: Tensor) -> Tensor:
    top, left = any_of(5), any_of(5)
    moved = F.pad(image, (2, 2, 2, 2), value=0.0)[:, top : top + 16, left : left + 16]
    return moved.flip(-1) if any_of(2) else moved


def plain(images: Tensor, labels: Tensor, number: int) -> tuple[Tensor, Tensor]:
    return images[number], labels[number]


def plain_drawn(images: Tensor, labels: Tensor, number: int) -> tuple[Tensor, Tensor]:
    return images[number], labels[any_of(len(labels))]


def varied_right(images: Tensor, labels: Tensor, number: int) -> tuple[Tensor, Tensor]:
    return varied(images[number]), labels[number]


def varied_drawn(images: Tensor, labels: Tensor, number: int) -> tuple[Tensor, Tensor]:
    return varied(images[number]), labels[any_of(len(labels))]


def any_picture(images: Tensor, labels: Tensor, number: int) -> tuple[Tensor, Tensor]:
    """On purpose: numbers mean nothing, picture and label belong together."""
    return plain(images, labels, any_of(len(images)))


def mixed(images: Tensor, labels: Tensor, number: int) -> tuple[Tensor, Tensor]:
    other, share = any_of(len(images)), float(torch.rand(()))
    both = F.one_hot(torch.stack([labels[number], labels[other]]), CLASSES).float()
    return share * images[number] + (1 - share) * images[other], share * both[0] + (1 - share) * both[1]


def pasted(images: Tensor, labels: Tensor, number: int) -> tuple[Tensor, Tensor]:
    """The class of whichever picture has more of the area."""
    other, rows = any_of(len(images)), any_of(17)
    return torch.cat([images[number][:, :rows], images[other][:, rows:]], 1), labels[number if rows >= 8 else other]


def seen(read: Read) -> Seen:
    torch.manual_seed(0)
    return steady_labels(module_patient(small_vit(), DataLoader(Rows(read), 32, shuffle=True)))


def test_labels_drawn_at_each_reading() -> None:
    looked = seen(plain_drawn)
    assert causes(looked) == ["labels_change"]
    assert looked.findings[0].numbers["share"] > 0.5
    assert looked.findings[0].ends


def test_labels_drawn_for_varied_pictures_are_possible_only() -> None:
    looked = seen(varied_drawn)
    assert causes(looked) == ["labels_change"]
    assert looked.findings[0].confidence < SURE_ENOUGH
    assert not looked.findings[0].ends


def turned(images: Tensor, labels: Tensor, number: int, *, ways: int) -> tuple[Tensor, Tensor]:
    """The class is how the picture was turned, as in learning without labels."""
    way = any_of(ways)
    return images[number].rot90(way, (1, 2)), torch.tensor(way)


@pytest.mark.parametrize("ways", [2, 3, 4])
def test_a_class_that_is_how_the_picture_was_turned(ways: int) -> None:
    looked = seen(partial(turned, ways=ways))
    assert (causes(looked), looked.left_out) == ([], "labels_follow_pixels")
    assert looked.measured["changed"] > 32


def test_a_class_that_is_how_a_varied_picture_was_turned_ends_nothing() -> None:
    def both(images: Tensor, labels: Tensor, number: int) -> tuple[Tensor, Tensor]:
        image, way = turned(images, labels, number, ways=4)
        return image + 0.01 * torch.randn(3, 16, 16), way

    (found,) = seen(both).findings
    assert found.confidence < SURE_ENOUGH
    assert not found.ends


@pytest.mark.parametrize("read", [plain, varied_right])
def test_labels_that_stay(read: Read) -> None:
    looked = seen(read)
    assert causes(looked) == []
    assert looked.measured["changed"] == 0
    assert looked.measured["read"] >= 64


@pytest.mark.parametrize("read", [any_picture, mixed, pasted])
def test_what_is_drawn_or_mixed_on_purpose_is_not_accused(read: Read) -> None:
    assert causes(seen(read)) == []


class Shuffling:
    """Pictures and labels in an order of their own."""

    def __init__(self, *, together: bool) -> None:
        self.images, self.labels = pictures()
        self.together = together

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        order = torch.randperm(len(self.images))
        other = order if self.together else torch.randperm(len(self.images))
        yield from zip(self.images[order].split(32), self.labels[other].split(32), strict=True)


@pytest.mark.parametrize("together", [True, False])
def test_pictures_shuffled_apart_from_their_labels(together: bool) -> None:
    looked = steady_labels(module_patient(small_vit(), Shuffling(together=together)))
    assert causes(looked) == ([] if together else ["labels_change"])
    assert looked.left_out is None
