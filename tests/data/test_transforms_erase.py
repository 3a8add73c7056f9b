"""Batched random erasing against torchvision, picture by picture and in distribution; and cutout."""

from __future__ import annotations

import pytest
import torch
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as T
from transform_samples import keys, same_distribution, same_frequencies

from vitscope.data.transforms.erase import cutout_places, erase_places, paint

LIKELY = 1e-3


@pytest.mark.parametrize(("channels", "size"), [(3, (32, 32)), (1, (20, 41))])
def test_painting_is_torchvisions(channels: int, size: tuple[int, int]) -> None:
    images = torch.randn(64, channels, *size, generator=torch.Generator().manual_seed(0))
    places = erase_places(keys(64), size, 0.7, (0.02, 0.33), (0.3, 3.3))
    ours = paint(images, *places)
    assert 0 < int((places[2] == 0).sum()) < 64
    for i, image in enumerate(images):
        top, left, height, width = (int(place[i]) for place in places)
        assert torch.equal(ours[i], T.erase(image, top, left, height, width, torch.zeros(1, 1, 1)))


@pytest.mark.parametrize(
    ("size", "scale", "ratio"),
    [
        ((32, 32), (0.02, 0.33), (0.3, 3.3)),
        ((20, 60), (0.3, 0.9), (0.3, 3.3)),  # often too high
        ((30, 30), (0.9, 1.0), (0.7, 1.4)),  # often none of the attempts fits
        ((30, 30), (0.0005, 0.003), (0.1, 10.0)),  # often rounded to nothing
    ],
)
def test_places_are_torchvisions(size: tuple[int, int], scale: tuple[float, float], ratio: tuple[float, float]) -> None:
    mine = erase_places(keys(4000), size, 1.0, scale, ratio)
    transform = v2.RandomErasing(1.0, scale=scale, ratio=ratio)
    torch.manual_seed(1)
    drawn = [transform.make_params([torch.zeros(3, *size)]) for _ in range(4000)]
    rows = [(p["i"], p["j"], p["h"], p["w"]) if p["v"] is not None else (None,) * 4 for p in drawn]
    painted = mine[2] + mine[3] > 0
    for n, ours in enumerate(mine):
        peer = [row[n] for row in rows if row[2] != 0 or row[3] != 0]
        kinds = [int(value) if there else None for value, there in zip(ours, painted, strict=True)]
        assert same_frequencies(kinds, peer) > LIKELY
    area = torch.tensor([row[2] * row[3] for row in rows if row[2] is not None])
    assert same_distribution((mine[2] * mine[3])[painted], area) > LIKELY


def test_a_wrong_share_is_noticed() -> None:
    transform = v2.RandomErasing(1.0, scale=(0.02, 0.33))
    torch.manual_seed(1)
    drawn = [transform.make_params([torch.zeros(3, 32, 32)]) for _ in range(4000)]
    area = torch.tensor([row["h"] * row["w"] for row in drawn])
    _, _, height, width = erase_places(keys(4000), (32, 32), 1.0, (0.04, 0.33), (0.3, 3.3))
    assert same_distribution(height * width, area) < LIKELY


@pytest.mark.parametrize("prob", [0.0, 0.25, 1.0])
def test_the_chance_is_kept(prob: float) -> None:
    share = float((erase_places(keys(20_000), (32, 32), prob, (0.02, 0.33), (0.3, 3.3))[2] > 0).float().mean())
    assert abs(share - prob) <= 4 * (prob * (1 - prob) / 20_000) ** 0.5


def test_cutout_is_a_square_about_any_pixel() -> None:
    size, side, count = (12, 16), 4, 30_000
    images = torch.ones(count, 1, *size)
    places = cutout_places(keys(count), size, side)
    holes = paint(images, *places)[:, 0] == 0
    assert {int(rows) for rows in holes.any(2).sum(1)} == {2, 3, 4}  # cut off at the edge
    assert bool((holes.sum((1, 2)) == holes.any(2).sum(1) * holes.any(1).sum(1)).all())
    centres = [(int(top) + 2, int(left) + 2) for top, left in zip(*places[:2], strict=True)]
    even = [(row, column) for row in range(12) for column in range(16)] * (count // (12 * 16))
    assert set(centres) == set(even)
    assert same_frequencies(centres, even) > LIKELY


@pytest.mark.parametrize("side", [1, 3, 8, 100])
def test_cutout_of_any_side(side: int) -> None:
    top, left, height, width = cutout_places(keys(50), (9, 9), side)
    holes = paint(torch.ones(50, 2, 9, 9), top, left, height, width)[:, 0] == 0
    assert bool((holes.sum((1, 2)) >= 1).all())
    for i in range(50):
        row, column = int(top[i]) + side // 2, int(left[i]) + side // 2
        assert bool(holes[i, row, column])
    assert int(holes.sum((1, 2)).max()) <= side**2


def test_a_picture_alone_comes_out_as_in_a_batch() -> None:
    images, some = torch.randn(30, 3, 16, 16, generator=torch.Generator().manual_seed(0)), keys(30)
    ours = paint(images, *erase_places(some, (16, 16), 0.5, (0.02, 0.33), (0.3, 3.3)))
    for i in range(30):
        alone = erase_places(some[i : i + 1], (16, 16), 0.5, (0.02, 0.33), (0.3, 3.3))
        assert torch.equal(paint(images[i : i + 1], *alone)[0], ours[i])
