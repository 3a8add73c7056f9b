"""Batched brightness, contrast, saturation and hue against torchvision, picture by picture and in distribution."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as T
from transform_samples import keys, pictures, same_distribution, same_frequencies

from vitscope.data.transforms.colour import HUE, blend, grey, jitter, jitter_draws, mean_grey, shift_hue

LIKELY = 1e-3
STRENGTHS = (0.4, 0.3, 0.9, 0.1)
SHAPES = [(3, (32, 32)), (1, (28, 28)), (3, (23, 37)), (1, (41, 20))]
NAMES = ("brightness_factor", "contrast_factor", "saturation_factor", "hue_factor")


def spread(values: Tensor) -> Tensor:
    return values[:, None, None, None]


def factors(count: int, low: float, high: float) -> Tensor:
    """(count,) float32, with both ends and the middle."""
    drawn = torch.rand(count, generator=torch.Generator().manual_seed(1)) * (high - low) + low
    drawn[:3] = torch.tensor([low, high, (low + high) / 2])
    return drawn[torch.randperm(count, generator=torch.Generator().manual_seed(2))]


@pytest.mark.parametrize(("channels", "size"), SHAPES)
@pytest.mark.parametrize("name", ["brightness", "contrast", "saturation"])
def test_blends_are_torchvisions(name: str, channels: int, size: tuple[int, int]) -> None:
    images = pictures(64, channels, size)
    some = factors(64, 0.0, 2.0)
    pixels = images.float()
    shades = grey(pixels)
    target = {"brightness": torch.zeros(()), "contrast": mean_grey(shades), "saturation": shades}[name]
    ours = blend(pixels, target, spread(some), spread(1 - some)).to(torch.uint8)
    if channels == 1 and name == "saturation":
        return  # `jitter` leaves it out
    for mine, image, factor in zip(ours, images, some.tolist(), strict=True):
        assert torch.equal(mine, getattr(T, f"adjust_{name}")(image, factor))


@pytest.mark.parametrize("size", [(32, 32), (23, 37)])
def test_hue_is_torchvisions(size: tuple[int, int]) -> None:
    images, some = pictures(64, 3, size), factors(64, -0.5, 0.5)
    ours = shift_hue(images.float(), some).to(torch.uint8)
    for mine, image, factor in zip(ours, images, some.tolist(), strict=True):
        assert torch.equal(mine, T.adjust_hue(image, factor))


def test_hue_of_every_kind_of_colour_is_torchvisions() -> None:
    """Two equal channels, all equal, black, white: where the formula has its corners."""
    steps = torch.tensor([0, 1, 127, 128, 254, 255], dtype=torch.uint8)
    colours = torch.cartesian_prod(steps, steps, steps).T.reshape(3, 12, 18)
    for factor in (-0.5, -1 / 3, -1e-8, 0.0, 1 / 6, 0.25, 0.5):
        ours = shift_hue(colours[None].float(), torch.tensor([factor]))[0].to(torch.uint8)
        assert torch.equal(ours, T.adjust_hue(colours, float(torch.tensor(factor))))


@pytest.mark.parametrize(("channels", "size"), SHAPES)
@pytest.mark.parametrize(
    "strengths", [STRENGTHS, (0.4, 0.0, 0.2, 0.0), (0.0, 0.3, 0.0, 0.1), (0.0, 0.0, 0.0, 0.5), (1.0, 1.0, 1.0, 0.5)]
)
def test_jitter_is_torchvisions(
    channels: int, size: tuple[int, int], strengths: tuple[float, float, float, float]
) -> None:
    images = pictures(64, channels, size)
    drawn, ranks = jitter_draws(keys(64), strengths)
    ours = jitter(images, drawn, ranks, strengths)
    transform = v2.ColorJitter(*strengths)
    for i, image in enumerate(images):
        params = {name: float(drawn[i, n]) if strengths[n] else None for n, name in enumerate(NAMES)}
        params["fn_idx"] = ranks[i].argsort()
        assert torch.equal(ours[i], transform.transform(image, params))


def test_every_order_is_drawn_as_often_as_in_torchvision() -> None:
    ranks = jitter_draws(keys(6000), STRENGTHS)[1]
    torch.manual_seed(0)
    transform = v2.ColorJitter(*STRENGTHS)
    peers = [tuple(transform.make_params([])["fn_idx"].argsort().tolist()) for _ in range(6000)]
    assert len(set(peers)) == 24
    assert same_frequencies([tuple(row) for row in ranks.tolist()], peers) > LIKELY
    # an order that puts the hue first more often than the others
    biased = [tuple(row) for row in ranks.tolist() if row[HUE] == 0 or row[0] != 0 or row[1] == 1]
    assert same_frequencies(biased, peers) < LIKELY


def test_factors_are_torchvisions() -> None:
    drawn = jitter_draws(keys(5000), STRENGTHS)[0]
    torch.manual_seed(0)
    transform = v2.ColorJitter(*STRENGTHS)
    params = [transform.make_params([]) for _ in range(5000)]
    for ours, name in zip(drawn.T, NAMES, strict=True):
        peer = torch.tensor([row[name] for row in params])
        assert same_distribution(ours, peer) > LIKELY
        assert same_distribution((ours - peer.mean()) * 1.1 + peer.mean(), peer) < LIKELY
    assert (torch.corrcoef(drawn.T) - torch.eye(4)).abs().max() < 4 / 5000**0.5


def test_a_picture_alone_comes_out_as_in_a_batch() -> None:
    images, some = pictures(20, 3, (23, 30)), keys(20)
    together = jitter(images, *jitter_draws(some, STRENGTHS), STRENGTHS)
    for i in range(20):
        alone = jitter(images[i : i + 1], *jitter_draws(some[i : i + 1], STRENGTHS), STRENGTHS)
        assert torch.equal(alone[0], together[i])
