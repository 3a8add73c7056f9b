"""Batched RandAugment against torchvision's, operation by operation and in distribution."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as T
from transform_samples import keys, pictures, same_frequencies

from vitscope.data.draws import integers
from vitscope.data.transforms.histogram import autocontrast_tables, equalize_tables, look_up
from vitscope.data.transforms.randaugment import BINS, MOVES, OPERATIONS, RandAugment, variants
from vitscope.data.transforms.streams import Stream

LIKELY = 1e-3
SHAPES = [(3, (32, 32)), (1, (28, 28)), (3, (23, 37)), (1, (41, 20)), (3, (2, 5))]


class Recorder(v2.RandAugment):
    """torchvision's own RandAugment, which notes what it applies."""

    def __init__(self, ops: int, magnitude: int) -> None:
        super().__init__(ops, magnitude)
        self.applied: list[tuple[str, float]] = []

    def _apply_image_or_video_transform(
        self, image: Tensor, transform_id: str, magnitude: float, **kwargs: Any
    ) -> Tensor:
        self.applied.append((transform_id, magnitude))
        return image


def theirs(image: Tensor, name: str, strength: float) -> Tensor:
    return v2.RandAugment()._apply_image_or_video_transform(image, name, strength, v2.InterpolationMode.NEAREST, {})


def test_the_operations_are_torchvisions() -> None:
    assert tuple(v2.RandAugment._AUGMENTATION_SPACE) == OPERATIONS


@pytest.mark.parametrize(("channels", "size"), SHAPES)
@pytest.mark.parametrize("magnitude", [0, 3, 9, 17, 30])
def test_every_operation_is_torchvisions(channels: int, size: tuple[int, int], magnitude: int) -> None:
    images = pictures(12, channels, size)
    augment = RandAugment(1, magnitude, size)
    table = variants(magnitude, size)
    everything = images.repeat_interleave(len(table), dim=0)
    ours = augment.vary(everything, torch.arange(len(table)).repeat(len(images)))
    for i, (mine, image) in enumerate(zip(ours, everything, strict=True)):
        assert torch.equal(mine, theirs(image, *table[i % len(table)])), table[i % len(table)]


@pytest.mark.parametrize("size", [(23, 23), (62, 38)])
@pytest.mark.parametrize("magnitude", range(BINS))
def test_of_two_pixels_as_near_the_same_is_taken(size: tuple[int, int], magnitude: int) -> None:
    """Every pixel has its own number. A shear of 0.12 ends halfway between pixels, where the last bit decides."""
    numbers = torch.arange(1, size[0] * size[1] + 1, dtype=torch.float32).view(1, *size)
    augment = RandAugment(1, magnitude, size)
    for number, (name, strength) in enumerate(variants(magnitude, size)):
        if name in MOVES:
            source = augment.source[augment.move[number]].view(1, *size)
            assert torch.equal(source + 1.0, theirs(numbers, name, strength)), (name, strength)


def test_large_pictures_too() -> None:
    images = pictures(6, 3, (224, 200))
    augment, table = RandAugment(1, 9, (224, 200)), variants(9, (224, 200))
    for number, (name, strength) in enumerate(table):
        ours = augment.vary(images[number % 6 :][:1], torch.tensor([number]))
        assert torch.equal(ours[0], theirs(images[number % 6], name, strength)), name


@pytest.mark.parametrize("channels", [1, 3])
def test_tables_of_levels_are_torchvisions(channels: int) -> None:
    """Pictures with few levels, with one, with gaps: the corners of equalise and autocontrast."""
    rng = torch.Generator().manual_seed(0)
    images = pictures(60, channels, (20, 30))
    for i, count in enumerate((1, 2, 3, 5, 17)):
        few = torch.randint(0, 256, (count,), generator=rng, dtype=torch.uint8)
        images[i] = few[torch.randint(0, count, images[i].shape, generator=rng)]
    images[5, :, :, :29] = 255
    pixels = images.flatten(2)
    equal = look_up(pixels, equalize_tables(pixels)).view_as(images)
    auto = look_up(pixels, autocontrast_tables(pixels)).view_as(images)
    for i, image in enumerate(images):
        assert torch.equal(equal[i], T.equalize(image))
        assert torch.equal(auto[i], T.autocontrast(image))


@pytest.mark.parametrize("magnitude", [0, 9, 30])
def test_operations_and_signs_are_drawn_as_in_torchvision(magnitude: int) -> None:
    size, count = (32, 40), 5000
    table = variants(magnitude, size)
    peer = Recorder(2, magnitude)
    torch.manual_seed(0)
    for _ in range(count):
        peer(torch.zeros(3, *size, dtype=torch.uint8))
    drawn = [table[v] for slot in (0, 1) for v in integers(keys(count), Stream.RANDAUGMENT + slot, len(table)).tolist()]
    assert {name for name, _ in peer.applied} == set(OPERATIONS)
    assert same_frequencies(_settled(drawn), _settled(peer.applied)) > LIKELY
    # with one sign in five lost, or a little stronger
    biased = [(name, abs(strength)) if i % 5 == 0 else (name, strength) for i, (name, strength) in enumerate(drawn)]
    if magnitude:
        assert same_frequencies(_settled(biased), _settled(peer.applied)) < LIKELY
    other = [(name, strength * 1.03) for name, strength in drawn]
    assert same_frequencies(_settled(other), _settled(peer.applied)) < LIKELY


def _settled(drawn: list[tuple[str, float]]) -> list[tuple[str, float]]:
    """No -0.0; and nothing for the operations without a strength."""
    return [(name, round(strength, 6) + 0.0) for name, strength in drawn]


def test_the_slots_of_one_picture_do_not_depend_on_each_other() -> None:
    first, second = (integers(keys(20_000), Stream.RANDAUGMENT + slot, 28) // 2 for slot in (0, 1))
    pairs = Counter(zip(first.tolist(), second.tolist(), strict=True))
    mean = 20_000 / 14**2
    chi = sum((pairs[i, j] - mean) ** 2 / mean for i in range(14) for j in range(14))
    assert abs(chi - (14**2 - 1)) < 4 * (2 * 14**2) ** 0.5


def test_slots_follow_each_other() -> None:
    images, some = pictures(40), keys(40)
    augment = RandAugment(3, 9, (32, 32))
    expected = images
    for slot in range(3):
        expected = augment.vary(expected, integers(some, Stream.RANDAUGMENT + slot, 28))
    assert torch.equal(augment(images, some), expected)


def test_a_picture_alone_comes_out_as_in_a_batch() -> None:
    images, some = pictures(40, 3, (23, 30)), keys(40)
    augment = RandAugment(2, 9, (23, 30))
    together = augment(images, some)
    for i in range(40):
        assert torch.equal(augment(images[i : i + 1], some[i : i + 1])[0], together[i])
    assert not torch.equal(together, images)


def test_nothing_of_it_is_saved() -> None:
    assert RandAugment(2, 9, (32, 32)).state_dict() == {}
