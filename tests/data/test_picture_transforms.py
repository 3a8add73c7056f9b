"""One picture at a time: sizes, chances, and that nothing but what was asked for happens."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms import InterpolationMode, v2

from vitscope.data.config import STRENGTHS, AugmentConfig, PreprocessConfig, augmentation, half_normalised
from vitscope.data.preprocess import normalise, preprocess, to_pixels
from vitscope.data.transforms.picture import picture_transform


def photograph(width: int = 60, height: int = 40, mode: str = "RGB") -> Image.Image:
    """Smooth, so that resampling by another way differs by roundings only."""
    down, across = np.mgrid[0:height, 0:width]
    waves = [np.sin(across / 7 + i) * np.cos(down / 9 - i) for i in range(3)]
    return Image.fromarray((127 + 120 * np.stack(waves, -1)).astype(np.uint8)).convert(mode)


def settings(height: int = 24, width: int = 24, in_chans: int = 3, **changes: Any) -> PreprocessConfig:
    halves = (0.5,) * in_chans
    return PreprocessConfig(img_size=(height, width), in_chans=in_chans, mean=halves, std=halves, **changes)


def drawn(augment: AugmentConfig, config: PreprocessConfig, picture: Image.Image, seed: int = 0) -> Tensor:
    torch.manual_seed(seed)
    return picture_transform(augment, config)(picture)


def test_preprocess_is_pixels_then_normalised() -> None:
    config, picture = settings(16, 24), photograph()
    pixels = to_pixels(picture, config)
    assert (pixels.dtype, pixels.shape) == (torch.uint8, (3, 16, 24))
    assert torch.equal(normalise(pixels, config), preprocess(picture, config))
    assert torch.equal(normalise(pixels[None], config)[0], preprocess(picture, config))


@pytest.mark.parametrize("augment", [None, AugmentConfig()], ids=["evaluation", "augment none"])
@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA"])
def test_without_variation_it_is_what_evaluation_does(augment: AugmentConfig | None, mode: str) -> None:
    config, picture = settings(16, 24, crop_share=0.9), photograph(mode=mode)
    before = torch.get_rng_state()
    transform = picture_transform(augment, config)
    assert torch.equal(transform(picture), to_pixels(picture, config))
    assert not transform.is_random
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("strength", STRENGTHS)
@pytest.mark.parametrize("in_chans", [1, 3])
@pytest.mark.parametrize("img_size", [(32, 32), (120, 96)])
@pytest.mark.parametrize("size", [(60, 40), (40, 60), (1, 1), (3000, 1), (1, 3000)])
def test_every_strength_gives_bytes_of_the_size(
    strength: str, in_chans: int, img_size: tuple[int, int], size: tuple[int, int]
) -> None:
    transform = picture_transform(augmentation(strength, img_size), half_normalised(img_size, in_chans))
    for seed in range(3):
        torch.manual_seed(seed)
        pixels = transform(photograph(*size), mirrored=seed == 1)
        assert (pixels.dtype, pixels.shape) == (torch.uint8, (in_chans, *img_size))


def test_the_given_picture_is_not_changed() -> None:
    picture = photograph(24, 24)
    before = picture.tobytes()
    for strength in STRENGTHS:
        picture_transform(augmentation(strength, 24), settings())(picture, mirrored=True)
    assert picture.tobytes() == before


def test_it_draws_from_torchs_generator_and_from_nothing_else() -> None:
    augment = AugmentConfig(crop="margin", margin=8, rotate_degrees=15, jitter=(0.4, 0.4, 0.4, 0.1), randaugment_ops=2)
    once, again = (drawn(augment, settings(), photograph(), seed=3) for _ in range(2))
    other = drawn(augment, settings(), photograph(), seed=4)
    assert torch.equal(once, again)
    assert not torch.equal(once, other)


def test_it_can_be_sent_to_a_worker() -> None:
    transform = picture_transform(augmentation("medium", 120), settings())
    sent = pickle.loads(pickle.dumps(transform))
    torch.manual_seed(0)
    here = transform(photograph())
    torch.manual_seed(0)
    assert torch.equal(sent(photograph()), here)


def test_mirrored_is_the_mirror_image_and_nothing_is_drawn() -> None:
    transform = picture_transform(AugmentConfig(flip="random"), settings())
    before = torch.get_rng_state()
    assert torch.equal(transform(photograph(), mirrored=True), transform(photograph()).flip(-1))
    assert torch.equal(torch.get_rng_state(), before)


# --- crops ------------------------------------------------------------------------------------------------------


def test_padded_crop_moves_the_picture_within_a_black_frame() -> None:
    config = settings(8, 8)
    whole = to_pixels(photograph(8, 8), config)
    framed = torch.nn.functional.pad(whole, (2, 2, 2, 2))
    windows = {(top, left): framed[:, top : top + 8, left : left + 8] for top in range(5) for left in range(5)}
    seen = set()
    for seed in range(300):
        pixels = drawn(AugmentConfig(crop="padded", padding=2), config, photograph(8, 8), seed)
        seen |= {place for place, window in windows.items() if torch.equal(window, pixels)}
    assert seen == set(windows)


@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear", "nearest"])
def test_resized_crop_is_torchvisions(interpolation: Any) -> None:
    config = settings(20, 12, interpolation=interpolation)
    augment = AugmentConfig(crop="resized", crop_scale=(0.2, 0.9), crop_ratio=(0.5, 2.0))
    peer = v2.RandomResizedCrop((20, 12), (0.2, 0.9), (0.5, 2.0), interpolation=InterpolationMode(interpolation))
    for seed in range(5):
        torch.manual_seed(seed)
        wanted = v2.functional.pil_to_tensor(peer(photograph()))
        assert torch.equal(drawn(augment, config, photograph(), seed), wanted)


@pytest.mark.parametrize("size", [(60, 40), (40, 60), (31, 29)])
def test_margin_crop_is_a_window_of_the_resized_picture(size: tuple[int, int]) -> None:
    """To a rounding: the cut is resampled alone."""
    picture = photograph(*size)
    whole = v2.functional.pil_to_tensor(v2.Resize(32, interpolation=InterpolationMode.BICUBIC)(picture)).float()
    places = set()
    for seed in range(40):
        pixels = drawn(AugmentConfig(crop="margin", margin=8), settings(24, 24), picture, seed).float()
        windows = whole.unfold(1, 24, 1).unfold(2, 24, 1)  # (C, down, across, 24, 24)
        worst = (windows - pixels[:, None, None]).abs().amax((0, 3, 4))
        assert worst.min() <= 2
        places.add(int(worst.argmin()))
    assert len(places) > 20


def test_margin_crop_reaches_every_edge() -> None:
    columns = Image.fromarray(np.tile(np.arange(32, dtype=np.uint8), (32, 1))).convert("RGB")
    firsts = {
        int(drawn(AugmentConfig(crop="margin", margin=8), settings(24, 24), columns, seed)[0, 0, 0])
        for seed in range(200)
    }
    assert firsts == set(range(9))


def test_margin_crop_of_a_shape_that_is_not_square_covers_both_sides() -> None:
    columns = Image.fromarray(np.tile(np.linspace(0, 255, 100, dtype=np.uint8), (100, 1))).convert("RGB")
    pixels = drawn(AugmentConfig(crop="margin", margin=4), settings(12, 36), columns)
    step = np.diff(pixels[0, 5].numpy().astype(int)).mean()
    assert step == pytest.approx(255 / 40, abs=0.5)  # 36 + 4 columns hold the whole width


def test_margin_crop_squashes_where_evaluation_does() -> None:
    columns = Image.fromarray(np.tile(np.linspace(0, 255, 200, dtype=np.uint8), (50, 1))).convert("RGB")
    pixels = drawn(AugmentConfig(crop="margin", margin=4), settings(36, 36, crop="squash"), columns)
    assert np.diff(pixels[0, 5].numpy().astype(int)).mean() == pytest.approx(255 / 40, abs=0.5)


# --- after the crop ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("augment", "peer"),
    [
        (AugmentConfig(rotate_degrees=15), v2.RandomRotation(15, interpolation=InterpolationMode.BILINEAR, fill=0)),
        (AugmentConfig(jitter=(0.4, 0.3, 0.2, 0.1)), v2.ColorJitter(0.4, 0.3, 0.2, 0.1)),
        (AugmentConfig(randaugment_ops=2, randaugment_magnitude=9), v2.RandAugment(2, 9)),
    ],
    ids=["rotation", "jitter", "randaugment"],
)
def test_the_rest_is_torchvisions(augment: AugmentConfig, peer: v2.Transform) -> None:
    picture = photograph(24, 24)
    changed = 0
    for seed in range(8):
        torch.manual_seed(seed)
        wanted = v2.functional.pil_to_tensor(peer(picture))
        assert torch.equal(drawn(augment, settings(), picture, seed), wanted)
        changed += not torch.equal(wanted, to_pixels(picture, settings()))
    assert changed > 2


def test_the_order_is_that_of_the_fields() -> None:
    augment = AugmentConfig(crop="padded", flip="random", rotate_degrees=30, jitter=(0.4, 0, 0, 0), randaugment_ops=1)
    torch.manual_seed(5)
    pixels = picture_transform(augment, settings())(photograph(24, 24), mirrored=True)
    torch.manual_seed(5)
    wanted = v2.RandomCrop(24, padding=4)(photograph(24, 24)).transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    wanted = v2.RandomRotation(30, interpolation=InterpolationMode.BILINEAR)(wanted)
    wanted = v2.RandAugment(1, 9)(v2.ColorJitter(0.4)(wanted))
    assert torch.equal(pixels, v2.functional.pil_to_tensor(wanted))
