"""One pass over a loader: what is kept of it, and when it ends."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from vitscope.doctor.glance import look
from vitscope.doctor.pixel_prints import pixel_prints


def test_a_loader_that_is_slow_to_begin_is_looked_at_all_the_same() -> None:
    """The first batch may take long: workers start, kernels are compiled."""

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        time.sleep(0.3)
        for _ in range(3):
            yield torch.rand(4, 3, 8, 8), torch.arange(4)

    looked = look(batches, seconds=0.1)
    assert len(looked) == 12
    assert looked.is_whole


def test_a_loader_that_stays_slow_is_left_after_twice_the_time() -> None:
    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        for _ in range(100):
            time.sleep(0.05)
            yield torch.rand(4, 3, 8, 8), torch.arange(4)

    looked = look(batches, seconds=0.1)
    assert 4 <= len(looked) < 80
    assert not looked.is_whole


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("side", [1, 5, 8])  # one byte, 75 and 192: padded to words, or not
def test_equal_pixels_have_equal_numbers_and_others_have_not(dtype: torch.dtype, side: int) -> None:
    channels = 1 if side == 1 else 3
    pixels = torch.randint(0, 256, (64, channels, side, side)).to(dtype)
    pixels[40] = pixels[3]
    prints = pixel_prints(pixels).tolist()
    contents = [tuple(one.flatten().double().tolist()) for one in pixels]
    assert prints[40] == prints[3]
    for number, (one, content) in enumerate(zip(prints, contents, strict=True)):
        assert [one == other for other in prints[:number]] == [content == other for other in contents[:number]]


def test_numbers_do_not_depend_on_the_batch_or_the_layout() -> None:
    pixels = torch.rand(16, 3, 9, 9)
    whole = pixel_prints(pixels)
    assert torch.equal(whole, torch.cat([pixel_prints(one[None]) for one in pixels]))
    assert torch.equal(whole, pixel_prints(pixels.to(memory_format=torch.channels_last)))


def test_pictures_of_two_values_that_differ_in_their_sign_alone_are_told_apart() -> None:
    """+1 and -1 differ in the highest bit of a word: a sum of plain words would know little of that."""
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 2, (20_000, 1, 8, 8), generator=generator).float() * 2 - 1
    distinct = len({one.numpy().tobytes() for one in pixels})
    assert distinct == 20_000
    prints = pixel_prints(pixels)
    assert len(prints.unique()) == distinct
    assert len((prints & 0xFFFFFFFF).unique()) > 19_900  # the lower half alone tells nearly all
