"""Batched crops, mirrors and turns against torchvision, picture by picture and in distribution."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as T
from transform_samples import keys, pictures, same_distribution, same_frequencies

from vitscope.core.errors import InputError
from vitscope.data.transforms.crop import crop_places, cut, padded_crop
from vitscope.data.transforms.flip import alternating_flips, flip, random_flips
from vitscope.data.transforms.resized import part_places, resized_crop
from vitscope.data.transforms.rotate import angles, rotate
from vitscope.data.transforms.streams import COUNTS, Stream

LIKELY = 1e-3
"""A fixed seed draws once; p below this would say that the distributions differ."""
SHAPES = [(3, (32, 32)), (1, (28, 28)), (3, (24, 37)), (1, (41, 20))]


def theirs(transform: v2.Transform, image: Tensor, count: int, *names: str, seed: int = 0) -> list[Tensor]:
    """What torchvision itself draws."""
    torch.manual_seed(seed)
    drawn = [transform.make_params([image]) for _ in range(count)]
    return [torch.tensor([params[name] for params in drawn]) for name in names]


def test_no_two_draws_share_a_stream() -> None:
    taken = [stream + i for stream in Stream for i in range(COUNTS.get(stream, 1))]
    assert len(taken) == len(set(taken))


@pytest.mark.parametrize(("channels", "size"), SHAPES)
@pytest.mark.parametrize("padding", [0, 1, 4, 50])
def test_a_padded_crop_is_torchvisions(channels: int, size: tuple[int, int], padding: int) -> None:
    images = pictures(24, channels, size)
    top, left = crop_places(keys(24), size, size, padding)
    ours = padded_crop(images, top, left, padding, size)
    for i, image in enumerate(images):
        peer = T.crop(T.pad(image, [padding]), int(top[i]), int(left[i]), *size)
        assert torch.equal(ours[i], peer)


@pytest.mark.parametrize(("channels", "size"), SHAPES)
def test_a_cut_is_torchvisions(channels: int, size: tuple[int, int]) -> None:
    images = pictures(24, channels, (size[0] + 9, size[1] + 5))
    top, left = crop_places(keys(24), (size[0] + 9, size[1] + 5), size)
    flips = random_flips(keys(24))
    ours = cut(images, top, left, size, flips)
    for i, image in enumerate(images):
        peer = T.crop(image, int(top[i]), int(left[i]), *size)
        assert torch.equal(ours[i], T.horizontal_flip(peer) if flips[i] else peer)


def test_a_window_larger_than_the_picture_is_refused() -> None:
    with pytest.raises(InputError, match="at least 40 x 32 pixels"):
        crop_places(keys(3), (32, 32), (40, 32), 3)


def test_crop_places_are_torchvisions() -> None:
    mine = crop_places(keys(5000), (32, 40), (32, 36), 4)
    peers = theirs(v2.RandomCrop((32, 36), padding=4), pictures(4, size=(32, 40))[0], 5000, "top", "left")
    for ours, peer in zip(mine, peers, strict=True):
        assert same_frequencies(ours.tolist(), peer.tolist()) > LIKELY
    narrower = crop_places(keys(5000), (32, 40), (32, 36), 3)[0]
    assert same_frequencies(narrower.tolist(), peers[0].tolist()) < LIKELY


def test_the_places_of_one_picture_do_not_depend_on_each_other() -> None:
    top, left = crop_places(keys(20_000), (32, 32), (32, 32), 4)
    flips = random_flips(keys(20_000))
    drawn = torch.stack((top.float(), left.float(), flips.float(), angles(keys(20_000), 10)))
    assert (torch.corrcoef(drawn) - torch.eye(4)).abs().max() < 4 / 20_000**0.5


@pytest.mark.parametrize(("channels", "size"), SHAPES)
def test_a_flip_is_torchvisions(channels: int, size: tuple[int, int]) -> None:
    images, flips = pictures(16, channels, size), random_flips(keys(16))
    assert 0 < int(flips.sum()) < 16
    for ours, image, mirrored in zip(flip(images, flips), images, flips, strict=True):
        assert torch.equal(ours, T.horizontal_flip(image) if mirrored else image)


def test_half_of_the_pictures_are_mirrored() -> None:
    assert abs(float(random_flips(keys(40_000)).float().mean()) - 0.5) < 4 * 0.5 / 40_000**0.5


def test_alternating_flips_alternate() -> None:
    """Every picture is seen both ways in any two epochs in a row, and the coin is fair in each."""
    flips = [alternating_flips(keys(1000), torch.tensor(epoch)) for epoch in range(4)]
    assert torch.equal(flips[1], ~flips[0])
    assert torch.equal(flips[2], flips[0])
    assert torch.equal(flips[3], flips[1])
    assert 400 < int(flips[0].sum()) < 600


@pytest.mark.parametrize(("channels", "stored"), SHAPES)
@pytest.mark.parametrize("size", [(32, 32), (16, 50)])
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic", "nearest"])
def test_a_resized_crop_is_torchvisions(
    channels: int, stored: tuple[int, int], size: tuple[int, int], interpolation: str
) -> None:
    images, flips = pictures(40, channels, stored), random_flips(keys(40))
    places = part_places(keys(40), stored, (0.02, 1.0), (0.5, 2.0))
    ours = resized_crop(images, *places, size, interpolation, flips)  # type: ignore[arg-type]
    off = 0.0
    for i, image in enumerate(images):
        box = [int(place[i]) for place in places]
        peer = T.resized_crop(image, *box, list(size), T.InterpolationMode(interpolation), antialias=True)
        gap = (ours[i].int() - (T.horizontal_flip(peer) if flips[i] else peer).int()).abs()
        assert gap.max() <= 1
        off += float((gap > 0).float().mean()) / len(images)
    if torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512"):  # elsewhere torchvision resizes in float32
        assert off < 1e-3


def test_a_resized_crop_far_down_is_torchvisions() -> None:
    """Where antialiasing matters: photographs to thumbnails."""
    images = pictures(8, 3, (150, 211))
    places = part_places(keys(8), (150, 211), (0.5, 1.0), (0.75, 4 / 3))
    ours = resized_crop(images, *places, (16, 12))
    for i, image in enumerate(images):
        peer = T.resized_crop(image, *(int(place[i]) for place in places), [16, 12], antialias=True)
        assert (ours[i].int() - peer.int()).abs().max() <= 1


def test_the_whole_picture_at_its_own_size_is_untouched() -> None:
    images = pictures(8, 3, (24, 37))
    zero, height, width = torch.zeros(8, dtype=torch.int64), torch.full((8,), 24), torch.full((8,), 37)
    for interpolation in ("bilinear", "bicubic", "nearest"):
        assert torch.equal(resized_crop(images, zero, zero, height, width, (24, 37), interpolation), images)


@pytest.mark.parametrize(
    ("stored", "scale", "ratio"),
    [
        ((32, 32), (0.08, 1.0), (3 / 4, 4 / 3)),
        ((32, 32), (0.5, 1.0), (3 / 4, 4 / 3)),
        ((20, 100), (0.6, 1.0), (3 / 4, 4 / 3)),  # nothing ever fits: the fallback, too wide
        ((100, 20), (0.2, 0.9), (3 / 4, 4 / 3)),  # sometimes, and too high
        ((30, 31), (0.99, 1.0), (0.3, 3.0)),  # sometimes, and the whole picture
    ],
)
def test_part_places_are_torchvisions(
    stored: tuple[int, int], scale: tuple[float, float], ratio: tuple[float, float]
) -> None:
    mine = part_places(keys(4000), stored, scale, ratio)
    transform = v2.RandomResizedCrop(32, scale=scale, ratio=ratio)
    peers = theirs(transform, torch.zeros(3, *stored), 4000, "top", "left", "height", "width", seed=3)
    for ours, peer in zip(mine, peers, strict=True):
        assert same_frequencies(ours.tolist(), peer.tolist()) > LIKELY
        assert same_distribution(ours, peer) > LIKELY
    assert same_distribution(mine[2] * mine[3], peers[2] * peers[3]) > LIKELY
    assert same_distribution(mine[2] / mine[3], peers[2] / peers[3]) > LIKELY
    inside = (mine[0] >= 0) & (mine[1] >= 0) & (mine[0] + mine[2] <= stored[0]) & (mine[1] + mine[3] <= stored[1])
    assert bool(inside.all())


def test_a_wrong_range_of_parts_is_noticed() -> None:
    peers = theirs(v2.RandomResizedCrop(32), torch.zeros(3, 32, 32), 4000, "height", "width")
    for scale, ratio in (((0.12, 1.0), (3 / 4, 4 / 3)), ((0.08, 1.0), (0.7, 1 / 0.7))):
        height, width = part_places(keys(4000), (32, 32), scale, ratio)[2:]
        area = same_distribution(height * width, peers[0] * peers[1])
        shape = same_distribution(height / width, peers[0] / peers[1])
        assert min(area, shape) < LIKELY


@pytest.mark.parametrize(("channels", "size"), SHAPES)
def test_a_turn_is_torchvisions(channels: int, size: tuple[int, int]) -> None:
    images = pictures(40, channels, size)
    degrees = torch.cat((angles(keys(37), 180), torch.tensor([0.0, 90.0, -180.0])))
    ours = rotate(images, degrees)
    transform = v2.RandomRotation(180, interpolation=v2.InterpolationMode.BILINEAR)
    off = 0.0
    for i, image in enumerate(images):
        gap = (ours[i].int() - transform.transform(image, {"angle": float(degrees[i])}).int()).abs()
        assert gap.max() <= 1
        off += float((gap > 0).float().mean()) / len(images)
    assert off < 0.002


def test_angles_are_torchvisions() -> None:
    (peer,) = theirs(v2.RandomRotation(15), torch.zeros(3, 8, 8), 5000, "angle")
    assert same_distribution(angles(keys(5000), 15), peer) > LIKELY
    assert same_distribution(angles(keys(5000), 13.5), peer) < LIKELY


def test_a_picture_alone_comes_out_as_in_a_batch() -> None:
    images, some = pictures(20, 3, (24, 30)), keys(20)

    def varied(which: slice) -> Tensor:
        flips = random_flips(some[which])
        parts = part_places(some[which], (24, 30), (0.1, 1.0), (0.75, 4 / 3))
        made = resized_crop(images[which], *parts, (24, 30), "bicubic", flips)
        made = padded_crop(made, *crop_places(some[which], (24, 30), (24, 30), 4), 4, (24, 30))
        return rotate(made, angles(some[which], 20))

    together = varied(slice(None))
    for i in range(20):
        assert torch.equal(varied(slice(i, i + 1))[0], together[i])
