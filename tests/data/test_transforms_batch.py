"""The batched pipeline as a whole: same pictures as torchvision's, in any batch, in one graph."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms import v2
from transform_samples import keys, pictures

from vitscope.core.config import updated
from vitscope.core.errors import InputError
from vitscope.data import draws
from vitscope.data.config.augment import STRENGTHS, AugmentConfig, augmentation
from vitscope.data.config.preprocess import NORMALISATIONS, PreprocessConfig, half_normalised
from vitscope.data.preprocess import preprocess
from vitscope.data.transforms.batch import BatchTransform
from vitscope.data.transforms.streams import COUNTS, Stream

SMALL = half_normalised((32, 32), 3)
EVERYTHING = AugmentConfig(
    crop="resized",
    flip="alternating",
    rotate_degrees=15.0,
    jitter=(0.4, 0.4, 0.4, 0.1),
    randaugment_ops=3,
    erase_prob=0.5,
    cutout_size=5,
)
FIRST = torch.tensor(0)


def varied(transform: BatchTransform, images: Tensor, some: Tensor, epoch: Tensor = FIRST) -> Tensor:
    return transform.finish(transform.vary(images, some, keys(len(images), 7), epoch), some)


@pytest.mark.parametrize("in_chans", [1, 3])
@pytest.mark.parametrize("name", ["half", "imagenet", "mnist"])
def test_finishing_is_preprocessing_to_the_bit(in_chans: int, name: str) -> None:
    mean, std = (values[:1] * in_chans if in_chans == 1 else (values * 3)[:3] for values in NORMALISATIONS[name])
    config = PreprocessConfig(img_size=(20, 33), in_chans=in_chans, mean=mean, std=std)
    transform = BatchTransform(AugmentConfig(), config)
    images = pictures(12, in_chans, (20, 33))
    ours = varied(transform, images, keys(12))
    assert ours.dtype == torch.float32
    for mine, image in zip(ours, images, strict=True):
        array = image[0].numpy() if in_chans == 1 else image.permute(1, 2, 0).numpy()
        assert torch.equal(mine, preprocess(Image.fromarray(array), config))


@pytest.mark.parametrize("in_chans", [1, 3])
@pytest.mark.parametrize("crop", ["none", "padded", "resized", "margin"])
@pytest.mark.parametrize("size", [(32, 32), (24, 40)])
def test_a_picture_alone_comes_out_as_in_a_batch(in_chans: int, crop: str, size: tuple[int, int]) -> None:
    transform = BatchTransform(updated(EVERYTHING, crop=crop), half_normalised(size, in_chans))
    stored = size if crop in ("none", "padded") else (size[0] + 8, size[1] + 3)
    images, some, lasting, epoch = pictures(16, in_chans, stored), keys(16), keys(16, 7), torch.tensor(3)
    together = transform.vary(images, some, lasting, epoch)
    finished = transform.finish(together, some)
    assert (together.dtype, together.shape) == (torch.uint8, (16, in_chans, *size))
    for order in (torch.randperm(16, generator=torch.Generator().manual_seed(0)), torch.tensor([5])):
        apart = transform.vary(images[order], some[order], lasting[order], epoch)
        assert torch.equal(apart, together[order])
        assert torch.equal(transform.finish(apart, some[order]), finished[order])
    assert not torch.equal(transform.vary(images, keys(16, 8), lasting, epoch), together)


def test_no_two_draws_read_the_same_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    bits = draws._bits

    def one(some: Tensor, stream: int) -> Tensor:
        read.append(int(stream))
        return bits(some, stream)

    monkeypatch.setattr(draws, "_bits", one)
    transform = BatchTransform(updated(EVERYTHING, randaugment_ops=14), SMALL)
    varied(transform, pictures(4), keys(4))
    assert len(read) == len(set(read)) == 9 + 4 * 10 + 2 * 4 + 14
    assert set(read) <= {stream + i for stream in Stream for i in range(COUNTS.get(stream, 1))}


def test_only_the_alternating_flip_reads_the_lasting_keys() -> None:
    images = pictures(64)
    config = AugmentConfig(flip="alternating")
    transform = BatchTransform(config, SMALL)
    zeroth, first = (transform.vary(images, keys(64, e), keys(64, 7), torch.tensor(e)) for e in (0, 1))
    assert torch.equal(first, zeroth.flip(-1))
    random = BatchTransform(updated(EVERYTHING, flip="random"), SMALL)
    assert torch.equal(
        random.vary(images, keys(64), keys(64, 7), torch.tensor(0)),
        random.vary(images, keys(64), keys(64, 8), torch.tensor(1)),
    )


@pytest.mark.parametrize("crop", ["none", "padded"])
def test_pictures_stored_at_another_size_are_refused(crop: str) -> None:
    transform = BatchTransform(AugmentConfig(crop=crop), SMALL)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="expected 32 x 32 pixels, received 40 x 32"):
        transform.vary(pictures(4, 3, (40, 32)), keys(4), keys(4), FIRST)


def test_other_pictures_are_refused() -> None:
    transform = BatchTransform(AugmentConfig(), SMALL)
    with pytest.raises(InputError, match=r"expected uint8 \(B, 3, H, W\)"):
        transform.vary(pictures(4, 1), keys(4), keys(4), FIRST)
    with pytest.raises(InputError, match="uint8"):
        transform.vary(pictures(4).float(), keys(4), keys(4), FIRST)
    with pytest.raises(InputError, match="at least 32 x 32"):
        BatchTransform(AugmentConfig(crop="margin"), SMALL).vary(pictures(4, 3, (30, 40)), keys(4), keys(4), FIRST)
    with pytest.raises(InputError, match="in_chans"):
        BatchTransform(AugmentConfig(), half_normalised((32, 32), 4))


def test_varying_leaves_the_stored_pictures_alone() -> None:
    images = pictures(8)
    before = images.clone()
    for strength in STRENGTHS:
        varied(BatchTransform(augmentation(strength), SMALL), images, keys(8))
    varied(BatchTransform(EVERYTHING, SMALL), images, keys(8))
    assert torch.equal(images, before)


@pytest.mark.parametrize(
    ("name", "in_chans"),
    [
        ("none", 3),
        ("basic", 3),
        pytest.param("strong", 3, marks=pytest.mark.slow),  # its parts are in the others: its flip in basic
        ("margin", 3),
        ("everything", 1),
        ("everything", 3),
    ],
)
def test_both_methods_are_one_graph(name: str, in_chans: int) -> None:
    """fullgraph fails at a host sync, a branch on a value or a shape that depends on one."""
    named = {"everything": EVERYTHING, "margin": augmentation("basic", 224)}
    config = named[name] if name in named else augmentation(name)
    transform = BatchTransform(config, half_normalised((16, 20), in_chans))
    torch.compiler.reset()
    vary = torch.compile(transform.vary, fullgraph=True, backend="eager")
    finish = torch.compile(transform.finish, fullgraph=True, backend="eager")
    images, some, lasting = pictures(8, in_chans, (16, 20)), keys(8), keys(8, 7)
    for epoch in (torch.tensor(0), torch.tensor(1)):
        eager = transform.vary(images, some, lasting, epoch)
        assert torch.equal(vary(images, some, lasting, epoch), eager)
        assert torch.equal(finish(eager, some), transform.finish(eager, some))


def regions(images: Tensor) -> Tensor:
    """(B, R): the mean of each 8 x 8 region and channel, and the contrast within it."""
    cells = images.float().unfold(2, 8, 8).unfold(3, 8, 8).flatten(4)
    return torch.cat((cells.mean(4).flatten(1), cells.std(4).flatten(1)), dim=1).double()


def gap(ours: Tensor, theirs: Tensor) -> float:
    """How many standard errors the mean or the variance of any number of two samples (B, R) lie apart, at most."""
    gaps = []
    middle = theirs.mean(0)
    for power in (1, 2):
        mine, yours = (ours - middle) ** power, (theirs - middle) ** power
        error = (mine.var(0) / len(mine) + yours.var(0) / len(yours)).sqrt()
        gaps.append(((mine.mean(0) - yours.mean(0)).abs() / error).max())
    return float(max(gaps))


def basic_peer() -> Callable[[Tensor], Tensor]:
    return v2.Compose([v2.RandomCrop(32, padding=4), v2.RandomHorizontalFlip(), v2.ColorJitter(0.2, 0.2, 0.2, 0.1)])


def strong_peer() -> Callable[[Tensor], Tensor]:
    crop = v2.RandomResizedCrop(32, scale=(0.5, 1.0), interpolation=v2.InterpolationMode.BICUBIC)
    return v2.Compose([crop, v2.RandomHorizontalFlip(), v2.RandAugment(2, 9)])


def large_peer() -> Callable[[Tensor], Tensor]:
    turn = v2.RandomRotation(10, interpolation=v2.InterpolationMode.BILINEAR)
    return v2.Compose([v2.RandomCrop(32), v2.RandomHorizontalFlip(), turn, v2.ColorJitter(0.4, 0.4, 0.4, 0.1)])


@pytest.mark.parametrize(
    ("config", "wrong", "peer", "stored"),
    [
        (augmentation("basic"), {"padding": 5}, basic_peer, 32),
        (augmentation("basic"), {"jitter": (0.2, 0.2, 0.4, 0.1)}, basic_peer, 32),
        (augmentation("strong"), {"randaugment_magnitude": 12}, strong_peer, 32),
        (augmentation("strong"), {"crop_scale": (0.4, 1.0)}, strong_peer, 32),
        (augmentation("basic", 224), {"rotate_degrees": 15.0}, large_peer, 40),
    ],
)
def test_varied_pictures_are_distributed_as_torchvisions(
    config: AugmentConfig, wrong: dict[str, object], peer: Callable[[], Callable[[Tensor], Tensor]], stored: int
) -> None:
    """One picture, varied thousands of times: means and variances of its regions, to 4.5 standard errors."""
    image = pictures(8, 3, (stored, stored), seed=5)[0]
    theirs = torchvisions(peer, stored)
    assert gap(many(config, image), theirs) < 4.5
    assert gap(many(updated(config, **wrong), image), theirs) > 4.5


@cache
def torchvisions(peer: Callable[[], Callable[[Tensor], Tensor]], stored: int) -> Tensor:
    """(1500, R)"""
    image, compose = pictures(8, 3, (stored, stored), seed=5)[0], peer()
    torch.manual_seed(0)
    return regions(torch.stack([compose(image) for _ in range(1500)]))


def many(config: AugmentConfig, image: Tensor) -> Tensor:
    """(4000, R)"""
    transform = BatchTransform(config, SMALL)
    images = image.expand(250, -1, -1, -1)
    return torch.cat([regions(transform.vary(images, part, part, FIRST)) for part in keys(4000).split(250)])
