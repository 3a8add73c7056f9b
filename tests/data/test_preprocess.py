"""From a picture to a tensor: the size, the part that is kept, the numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torchvision.transforms import v2

from vitscope.core.config import from_dict, to_dict, updated
from vitscope.core.errors import ConfigError, DataError, UsageError
from vitscope.data import preprocess as preprocess_file
from vitscope.data.config import PreprocessConfig, half_normalised
from vitscope.data.photographs import BUILTIN_PICTURES, builtin_picture
from vitscope.data.preprocess import preprocess, resize, to_pixels


def picture(width: int, height: int, mode: str = "RGB") -> Image.Image:
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels).convert(mode)


def columns(width: int, height: int) -> Image.Image:
    """Every column has its own grey: the number of the column."""
    return Image.fromarray(np.tile(np.arange(width, dtype=np.uint8), (height, 1))).convert("RGB")


# --- numbers ----------------------------------------------------------------------------------------------------


def test_half_normalised_pixels_go_from_minus_1_to_1() -> None:
    config = half_normalised((8, 8), 3)
    for grey, value in ((0, -1.0), (255, 1.0)):
        tensor = preprocess(Image.new("RGB", (20, 20), (grey,) * 3), config)
        assert (tensor.shape, tensor.dtype) == ((3, 8, 8), torch.float32)
        assert torch.allclose(tensor, torch.full((3, 8, 8), value))


def test_each_channel_has_its_own_mean_and_std() -> None:
    config = PreprocessConfig(img_size=(4, 4), mean=(0.1, 0.2, 0.3), std=(0.5, 0.25, 2.0))
    tensor = preprocess(Image.new("RGB", (4, 4), (255, 0, 51)), config)
    wanted = torch.tensor([(1 - 0.1) / 0.5, (0 - 0.2) / 0.25, (0.2 - 0.3) / 2.0])
    assert torch.allclose(tensor, wanted[:, None, None].expand(3, 4, 4), atol=1e-6)


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_every_level_becomes_torchvisions_number_to_the_last_bit(mode: str) -> None:
    source = Image.fromarray(np.arange(256, dtype=np.uint8).reshape(8, 32)).convert(mode)
    channels = len(source.getbands())
    mean, std = (0.485, 0.456, 0.406)[:channels], (0.229, 0.224, 0.225)[:channels]
    config = PreprocessConfig(img_size=(8, 32), in_chans=channels, mean=mean, std=std)
    to_float = v2.ToDtype(torch.float32, scale=True)
    theirs = v2.Compose([v2.PILToTensor(), to_float, v2.Normalize(list(mean), list(std))])(source)
    assert torch.equal(preprocess(source, config), theirs)


def test_a_picture_of_the_right_size_is_not_resampled() -> None:
    source = picture(6, 4)
    tensor = preprocess(source, half_normalised((4, 6), 3))
    back = ((tensor + 1) * 127.5).round().to(torch.uint8).permute(1, 2, 0).numpy()
    assert np.array_equal(back, np.asarray(source))


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "P", "1", "CMYK", "LA"])
@pytest.mark.parametrize("in_chans", [1, 3])
def test_every_mode_of_picture_becomes_the_channels_the_model_reads(mode: str, in_chans: int) -> None:
    tensor = preprocess(picture(20, 10, mode), half_normalised((8, 8), in_chans))
    assert tensor.shape == (in_chans, 8, 8)
    assert torch.isfinite(tensor).all()
    assert tensor.abs().max() <= 1


def test_grey_is_the_luma_of_the_colours() -> None:
    tensor = preprocess(Image.new("RGB", (4, 4), (255, 0, 0)), half_normalised((4, 4), 1))
    assert torch.allclose((tensor + 1) / 2, torch.tensor(76 / 255), atol=1e-3)


@pytest.mark.parametrize("in_chans", [2, 4])
def test_other_numbers_of_channels_are_refused(in_chans: int) -> None:
    with pytest.raises(DataError, match=f"in_chans: expected 1 .grey. or 3 .RGB. for pictures, received {in_chans}"):
        preprocess(picture(8, 8), half_normalised((8, 8), in_chans))


# --- the part that is kept --------------------------------------------------------------------------------------


def test_the_middle_of_a_wide_picture_is_kept() -> None:
    kept = np.asarray(resize(columns(100, 20), PreprocessConfig(img_size=(20, 20))))
    assert kept.shape == (20, 20, 3)
    assert kept[0, :, 0].tolist() == list(range(40, 60))


def test_the_middle_of_a_tall_picture_is_kept() -> None:
    tall = columns(100, 20).transpose(Image.Transpose.ROTATE_270)
    kept = np.asarray(resize(tall, PreprocessConfig(img_size=(20, 20))))
    assert kept[:, 0, 0].tolist() == list(range(40, 60))


def test_squash_keeps_the_whole_picture() -> None:
    kept = np.asarray(resize(columns(100, 20), PreprocessConfig(img_size=(20, 20), crop="squash")))[0, :, 0]
    assert kept.shape == (20,)
    assert kept[0] < 5
    assert kept[-1] > 94


def test_a_share_of_the_side_is_cut_off_all_round() -> None:
    """As timm and the DeiT recipe do: resize to 224 / 0.875 = 256, cut 224 out of the middle."""
    config = PreprocessConfig(img_size=(224, 224), crop_share=0.875)
    source = picture(256, 256)
    assert np.array_equal(np.asarray(resize(source, config)), np.asarray(source.crop((16, 16, 240, 240))))


def test_height_and_width_are_not_mixed_up() -> None:
    assert resize(picture(50, 30), PreprocessConfig(img_size=(16, 48))).size == (48, 16)
    assert preprocess(picture(50, 30), half_normalised((16, 48), 3)).shape == (3, 16, 48)


@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear", "nearest"])
def test_interpolations_are_pillows(interpolation: str) -> None:
    config = PreprocessConfig(img_size=(7, 7), crop="squash", interpolation=interpolation)  # type: ignore[arg-type]
    source = picture(31, 17)
    wanted = source.resize((7, 7), Image.Resampling[interpolation.upper()])
    assert np.array_equal(np.asarray(resize(source, config)), np.asarray(wanted))


# --- the same as torchvision and timm ---------------------------------------------------------------------------

SIZES = [(427, 640), (640, 427), (333, 500), (224, 224), (32, 32), (100, 75), (31, 500), (500, 31), (225, 224)]
"""(height, width)."""
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def largest_difference(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    assert ours.shape == theirs.shape
    return (ours - theirs).abs().max().item()


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("share", [1.0, 0.95, 0.9, 0.875])
def test_a_square_is_timms(size: tuple[int, int], share: float) -> None:
    transforms_factory = pytest.importorskip("timm.data.transforms_factory")
    source = picture(size[1], size[0])
    for side in (224, 33, 384):
        theirs = transforms_factory.create_transform(
            (3, side, side), is_training=False, interpolation="bicubic", crop_pct=share, mean=MEAN, std=STD
        )
        config = PreprocessConfig(img_size=(side, side), crop_share=share, mean=MEAN, std=STD)
        assert largest_difference(preprocess(source, config), theirs(source)) < 1e-6, side


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear", "nearest"])
def test_a_square_is_torchvisions(size: tuple[int, int], interpolation: str) -> None:
    source = picture(size[1], size[0])
    for side, shorter in ((224, 256), (31, 38), (224, 224)):
        theirs = v2.Compose([v2.Resize(shorter, v2.InterpolationMode(interpolation)), v2.CenterCrop(side)])
        config = PreprocessConfig(img_size=(side, side), crop_share=side / shorter, interpolation=interpolation)  # type: ignore[arg-type]
        assert np.array_equal(np.asarray(resize(source, config)), np.asarray(theirs(source)))


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("target", [(224, 224), (97, 31)], ids=str)
def test_a_squashed_picture_is_timms(size: tuple[int, int], target: tuple[int, int]) -> None:
    """A share below 1 is cut out of the squashed picture too."""
    transforms_factory = pytest.importorskip("timm.data.transforms_factory")
    source = picture(size[1], size[0])
    for share in (1.0, 0.9, 0.875):
        theirs = transforms_factory.create_transform(
            (3, *target), interpolation="bicubic", crop_pct=share, crop_mode="squash", mean=MEAN, std=STD
        )
        config = PreprocessConfig(img_size=target, crop="squash", crop_share=share, mean=MEAN, std=STD)
        assert largest_difference(preprocess(source, config), theirs(source)) < 1e-6, share


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear", "nearest"])
def test_the_tensor_resizer_is_torchvisions_on_tensors(size: tuple[int, int], interpolation: str) -> None:
    """Margins that cannot be equal are rounded down, where Pillow's way rounds to the even one."""
    source = picture(size[1], size[0])
    mode = v2.InterpolationMode("nearest-exact" if interpolation == "nearest" else interpolation)
    config = PreprocessConfig(img_size=(31, 31), crop_share=31 / 38, interpolation=interpolation, resizer="tensor")  # type: ignore[arg-type]
    whole = v2.functional.resize(v2.functional.pil_to_tensor(source), [38], mode, antialias=True)
    top, left = (whole.shape[1] - 31) // 2, (whole.shape[2] - 31) // 2
    if whole[0].numel() <= 64 * 31 * 31:
        assert torch.equal(to_pixels(source, config), whole[:, top : top + 31, left : left + 31])


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_the_tensor_resizer_reads_grey_and_colour(mode: str) -> None:
    config = updated(half_normalised((8, 8), 1 if mode == "L" else 3), resizer="tensor")
    assert preprocess(picture(20, 10, mode), config).shape == (config.in_chans, 8, 8)


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("target", [(160, 320), (320, 160), (97, 31)], ids=str)
def test_a_rectangle_is_timms(size: tuple[int, int], target: tuple[int, int]) -> None:
    """timm always resizes to a rectangle bilinearly; here the setting counts."""
    transforms_factory = pytest.importorskip("timm.data.transforms_factory")
    source = picture(size[1], size[0])
    for share in (1.0, 0.9):
        theirs = transforms_factory.create_transform(
            (3, *target), is_training=False, crop_pct=share, mean=MEAN, std=STD
        )
        config = PreprocessConfig(img_size=target, crop_share=share, mean=MEAN, std=STD, interpolation="bilinear")
        assert largest_difference(preprocess(source, config), theirs(source)) < 1e-6


# --- pictures like threads --------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(20000, 1), (1, 20000), (20000, 3)], ids=str)
@pytest.mark.parametrize("target", [(224, 224), (160, 320)], ids=str)
def test_a_thread_takes_no_gigabytes(size: tuple[int, int], target: tuple[int, int], monkeypatch: Any) -> None:
    pixels, plain = [], Image.Image.resize

    def watched(self: Image.Image, size: tuple[int, int], *args: Any, **kwargs: Any) -> Image.Image:
        pixels.append(size[0] * size[1])
        return plain(self, size, *args, **kwargs)

    monkeypatch.setattr(Image.Image, "resize", watched)
    assert preprocess(picture(*size), half_normalised(target, 3)).shape == (3, *target)
    assert max(pixels) <= 64 * target[0] * target[1]


@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear", "nearest"])
@pytest.mark.parametrize("size", [(1500, 20), (20, 1500), (333, 2), (640, 427)], ids=str)
def test_cutting_first_shows_the_same_middle(size: tuple[int, int], interpolation: Any, monkeypatch: Any) -> None:
    config = PreprocessConfig(img_size=(16, 16), crop_share=0.9, interpolation=interpolation)
    source = picture(*size)
    monkeypatch.setattr(preprocess_file, "MOST_WASTE", 10**9)
    whole = np.asarray(resize(source, config)).astype(int)
    monkeypatch.setattr(preprocess_file, "MOST_WASTE", 0)
    cut = np.asarray(resize(source, config)).astype(int)
    # Pillow keeps the box in single precision: a grey or two apart, and ties between neighbours may fall otherwise.
    assert np.quantile(np.abs(whole - cut), 0.9) <= 1
    assert interpolation == "nearest" or np.abs(whole - cut).max() <= 3


sides = st.integers(1, 40)


@settings(max_examples=80, deadline=None)
@given(sides, sides, sides, sides, st.floats(0.3, 1.0), st.sampled_from(["centre", "squash"]))
def test_any_picture_comes_out_at_the_size_asked_for(w: int, h: int, down: int, across: int, share: float, crop: str):
    config = PreprocessConfig(img_size=(down, across), crop_share=share, crop=crop)  # type: ignore[arg-type]
    tensor = preprocess(Image.new("RGB", (w, h), (255, 255, 255)), config)
    assert tensor.shape == (3, down, across)
    assert torch.allclose(tensor, torch.ones(3, down, across))  # no black edge crept in


def test_the_picture_handed_in_is_left_as_it_was() -> None:
    source = picture(31, 17, "RGBA")
    before = source.tobytes()
    preprocess(source, half_normalised((8, 8), 3))
    assert (source.mode, source.size, source.tobytes()) == ("RGBA", (31, 17), before)


# --- settings ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ({"img_size": (0, 8)}, "img_size: expected positive sizes"),
        ({"in_chans": 0}, "in_chans: expected a positive integer, received 0"),
        ({"crop_share": 0.0}, "crop_share: expected a share above 0, up to 1"),
        ({"crop_share": 1.5}, "crop_share: expected a share above 0, up to 1"),
        ({"mean": (0.5,)}, "mean: expected 3 numbers, one per channel"),
        ({"std": (0.5, 0.5)}, "std: expected 3 numbers, one per channel"),
        ({"std": (0.5, 0.0, 0.5)}, "std: expected positive numbers"),
        ({"std": (0.5, float("nan"), 0.5)}, "std: expected finite numbers"),
        ({"mean": (0.5, float("inf"), 0.5)}, "mean: expected finite numbers"),
        ({"crop": "center"}, "crop: expected one of 'centre', 'squash', received 'center'"),
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, object], what: str) -> None:
    with pytest.raises(ConfigError) as refused:
        PreprocessConfig(**wrong)  # type: ignore[arg-type]
    assert refused.value.what.startswith(what)


def test_settings_survive_a_file() -> None:
    config = PreprocessConfig(img_size=(16, 48), crop="squash", crop_share=0.9, mean=(0.1, 0.2, 0.3))
    assert from_dict(PreprocessConfig, to_dict(config)) == config


@pytest.mark.parametrize("name", BUILTIN_PICTURES)
def test_builtin_pictures(name: str) -> None:
    found = builtin_picture(name)
    assert (found.size, found.mode) == ((640, 427), "RGB")
    assert np.asarray(found).std() > 30


def test_an_unknown_builtin_picture() -> None:
    with pytest.raises(UsageError, match="picture: expected one of china, flower, received 'flwoer'") as refused:
        builtin_picture("flwoer")
    assert refused.value.fix == "did you mean 'flower'?"
