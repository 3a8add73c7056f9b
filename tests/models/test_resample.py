"""Weights moved to other sizes and channels: what must stay the same stays the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from parity.random_weights import fill_with_large_random_weights
from vitscope.core.errors import ConfigError, VitscopeError
from vitscope.models.build import build_model
from vitscope.models.config import (
    CNNConfig,
    LSTMConfig,
    MAEConfig,
    ModelConfig,
    ResNetConfig,
    SimMIMConfig,
    SwinConfig,
    ViTConfig,
    pair,
)
from vitscope.models.layers.resample import (
    resample_channels,
    resample_painted,
    resample_patch_filter,
    resample_positions,
)

SMALL: dict[str, Any] = {"img_size": 32, "patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 4, "num_classes": 5}
HEADLESS = {**SMALL, "num_classes": 0}
CONFIGS: dict[str, ModelConfig] = {
    "learned": ViTConfig(**SMALL),
    "registers": ViTConfig(**SMALL, num_registers=2, prefix_position=False),
    "sincos": ViTConfig(**SMALL, position="sincos"),
    "rope": ViTConfig(**SMALL, position="rope"),
    "relative": ViTConfig(**SMALL, position="relative"),
    "swin": SwinConfig(img_size=32, patch_size=2, embed_dim=8, depths=(2, 2), num_heads=(2, 4), window_size=4),
    "resnet": ResNetConfig(img_size=32, depths=(1, 1), stem_width=8, num_classes=5),
    "cnn": CNNConfig(img_size=16, in_chans=3, widths=(4, 8), num_classes=5),
    "mae": MAEConfig(
        encoder=ViTConfig(**HEADLESS, position="sincos"), decoder_embed_dim=16, decoder_depth=1, decoder_num_heads=2
    ),
    "simmim": SimMIMConfig(encoder=ViTConfig(**HEADLESS)),
}
PATCHED = [name for name in CONFIGS if name not in ("resnet", "cnn")]


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def built(name: str) -> Any:
    model = build_model(CONFIGS[name]).eval()
    fill_with_large_random_weights(model)
    return model


def answer(model: Any, images: torch.Tensor) -> torch.Tensor:
    return model.forward_head(model.forward_features(images))


def assert_is_what_its_config_says(model: Any) -> None:
    """A rebuilt model takes its weights and gives its answers."""
    rebuilt = build_model(model.config).eval()
    rebuilt.load_state_dict(model.state_dict(), strict=True)
    images = random(2, model.config.in_chans, *pair(model.config.img_size))
    with torch.no_grad():
        assert torch.equal(answer(model, images), answer(rebuilt, images))
        if isinstance(model.config, MAEConfig | SimMIMConfig):
            torch.manual_seed(0)
            first = model(images)
            torch.manual_seed(0)
            for mine, theirs in zip(first, rebuilt(images), strict=True):
                assert torch.equal(mine, theirs)


# --- filters ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("new", [(8, 8), (12, 16), (7, 9)])
def test_enlarged_patches_are_answered_as_before(new: tuple[int, int]) -> None:
    """FlexiViT's promise."""
    weight, patch = random(5, 3, 4, 4), random(1, 3, 4, 4, seed=1)
    enlarged = F.interpolate(patch, size=new, mode="bicubic", antialias=True)
    moved = resample_patch_filter(weight, new)
    torch.testing.assert_close((moved * enlarged).sum((1, 2, 3)), (weight * patch).sum((1, 2, 3)), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("old", "new"), [((8, 8), (4, 4)), ((8, 8), (5, 3)), ((4, 6), (8, 9)), ((16, 16), (14, 14))])
def test_by_area_a_patch_of_one_colour_is_answered_as_before(old: tuple[int, int], new: tuple[int, int]) -> None:
    weight = random(5, 3, *old)
    moved = resample_patch_filter(weight, new, "area")
    assert moved.shape == (5, 3, *new)
    torch.testing.assert_close(moved.sum((2, 3)), weight.sum((2, 3)), rtol=1e-4, atol=1e-4)


def test_area_sums_the_weights_under_each_pixel() -> None:
    weight = random(5, 3, 8, 6)
    wanted = F.avg_pool2d(weight, (4, 2)) * 8
    torch.testing.assert_close(resample_patch_filter(weight, (2, 3), "area"), wanted)


def test_a_grey_picture_is_answered_as_its_rgb_copy() -> None:
    weight, grey = random(5, 3, 4, 4), random(1, 1, 4, 4, seed=1)
    wanted = (weight * grey.expand(1, 3, 4, 4)).sum((1, 2, 3))
    torch.testing.assert_close((resample_channels(weight, 1, "sum") * grey).sum((1, 2, 3)), wanted)
    back = resample_channels(resample_channels(weight, 1, "sum"), 3, "sum")
    torch.testing.assert_close((back * grey.expand(1, 3, 4, 4)).sum((1, 2, 3)), wanted)


@pytest.mark.parametrize(("old", "new"), [(3, 2), (3, 4), (3, 5), (3, 7), (4, 3), (5, 2), (1, 3), (2, 5)])
def test_the_sum_over_channels_stays(old: int, new: int) -> None:
    weight = random(5, old, 4, 4)
    torch.testing.assert_close(resample_channels(weight, new, "sum").sum(1), weight.sum(1))


def test_mean_and_repeat_are_what_they_say() -> None:
    weight = random(5, 3, 4, 4)
    torch.testing.assert_close(resample_channels(weight, 1, "mean"), weight.mean(1, keepdim=True))
    torch.testing.assert_close(resample_channels(weight, 2, "mean")[:, 1], weight.mean(1))
    assert torch.equal(resample_channels(weight, 5, "repeat"), weight[:, [0, 1, 2, 0, 1]])
    assert torch.equal(resample_channels(weight, 1, "repeat"), weight[:, :1])


def test_what_does_not_change_is_the_same_tensor() -> None:
    weight = random(5, 3, 4, 4)
    assert resample_patch_filter(weight, (4, 4)) is weight
    assert resample_channels(weight, 3) is weight


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_the_type_of_numbers_stays(dtype: torch.dtype) -> None:
    weight = random(5, 3, 4, 4).to(dtype)
    for method in ("pseudo_inverse", "area"):
        assert resample_patch_filter(weight, (6, 6), method).dtype == dtype  # type: ignore[arg-type]
    for method in ("sum", "mean", "repeat"):
        assert resample_channels(weight, 4, method).dtype == dtype  # type: ignore[arg-type]
    assert resample_painted(weight, (6, 6), 1).dtype == dtype


def test_unknown_methods_are_refused() -> None:
    with pytest.raises(ConfigError, match="expected 'pseudo_inverse' or 'area', received 'nearest'"):
        resample_patch_filter(random(5, 3, 4, 4), (2, 2), "nearest")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="expected 'sum', 'mean' or 'repeat', received 'max'"):
        resample_channels(random(5, 3, 4, 4), 1, "max")  # type: ignore[arg-type]


@pytest.mark.parametrize("antialias", [True, False])
@pytest.mark.parametrize(("old", "new"), [((6, 1), (9, 1)), ((6, 1), (4, 1)), ((6, 1), (3, 2)), ((6, 2), (3, 1))])
def test_a_grid_of_one_column_is_one_of_one_row_on_its_side(
    old: tuple[int, int], new: tuple[int, int], antialias: bool
) -> None:
    table = random(1, old[0] * old[1], 4)
    lying = table.reshape(1, *old, 4).transpose(1, 2).reshape(1, -1, 4)
    found = resample_positions(table, old, new, antialias=antialias)
    wanted = resample_positions(lying, old[::-1], new[::-1], antialias=antialias)
    torch.testing.assert_close(found, wanted.reshape(1, *new[::-1], 4).transpose(1, 2).reshape(1, -1, 4))


def test_painted_columns_are_painted_rows_on_their_side() -> None:
    columns = random(4, 3, 6, 1)
    found = resample_painted(columns, (9, 1), 3)
    wanted = resample_painted(columns.transpose(2, 3).contiguous(), (1, 9), 3).transpose(2, 3)
    torch.testing.assert_close(found, wanted)


# --- models -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PATCHED)
def test_image_and_patch_size_together(name: str) -> None:
    model = built(name)
    size, patch = (64, 32), (4, 4)
    model.set_input_size(size, patch_size=patch)
    assert (model.config.img_size, model.config.patch_size) == (size, patch)
    assert_is_what_its_config_says(model)


@pytest.mark.parametrize("antialias", [True, False])
def test_positions_go_in_one_step(antialias: bool) -> None:
    """32 / 8 -> 24 / 4 is 4 x 4 -> 6 x 6, and no grid between."""
    model = built("learned")
    table, weight = model.pos_embed.detach().clone(), model.patch_embed.proj.weight.detach().clone()
    model.set_input_size(24, patch_size=4, antialias=antialias, patch_filter="area")
    wanted = resample_positions(table, (4, 4), (6, 6), num_prefix=1, antialias=antialias)
    assert torch.equal(model.pos_embed, wanted)
    assert torch.equal(model.patch_embed.proj.weight, resample_patch_filter(weight, (4, 4), "area"))


def test_the_same_grid_keeps_the_table_where_only_the_patch_changes() -> None:
    model = built("learned")
    before = dict(model.named_parameters())
    model.set_input_size(16, patch_size=4)
    changed = [name for name, parameter in model.named_parameters() if parameter is not before[name]]
    assert changed == ["patch_embed.proj.weight"]


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("in_chans", [1, 5])
def test_other_channels(name: str, in_chans: int) -> None:
    model = built(name)
    model.set_in_chans(in_chans)
    assert model.config.in_chans == in_chans
    assert_is_what_its_config_says(model)


@pytest.mark.parametrize("name", ["learned", "swin", "resnet", "cnn", "mae", "simmim"])
@torch.inference_mode()
def test_grey_pictures_get_the_answers_of_their_rgb_copies(name: str) -> None:
    model = built(name)
    grey = random(2, 1, *pair(model.config.img_size))
    wanted = answer(model, grey.expand(-1, 3, -1, -1))
    model.set_in_chans(1)
    torch.testing.assert_close(answer(model, grey), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", CONFIGS)
def test_what_stays_keeps_every_parameter_and_its_gradient_flag(name: str) -> None:
    model = built(name)
    model.requires_grad_(False)
    before = dict(model.named_parameters())
    model.set_in_chans(model.config.in_chans)
    patch = getattr(model.config, "patch_size", None)
    model.set_input_size(model.config.img_size, patch_size=patch)
    assert all(parameter is before[key] for key, parameter in model.named_parameters())
    model.set_in_chans(1)
    assert not any(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize("name", ["mae", "simmim"])
@torch.inference_mode()
def test_a_masked_model_paints_the_same_picture_smaller(name: str) -> None:
    """What is painted for the same tokens is the old patch, resized."""
    model = built(name)
    tokens = random(1, 3, 16 if name == "mae" else 32)
    old = painted(model, tokens)
    model.set_input_size(16, patch_size=4)
    wanted = F.interpolate(old, size=(4, 4), mode="bicubic", antialias=True)
    torch.testing.assert_close(painted(model, tokens), wanted, rtol=1e-4, atol=1e-4)
    model.set_in_chans(1)
    torch.testing.assert_close(painted(model, tokens), wanted.mean(1, keepdim=True), rtol=1e-4, atol=1e-4)


def painted(model: Any, tokens: torch.Tensor) -> torch.Tensor:
    """The patch each token (1, N, D) is painted as: (N, C, p, q)."""
    p, q = pair(model.config.patch_size)
    if isinstance(model.config, MAEConfig):
        return model.decoder_pred(tokens)[0].reshape(-1, p, q, model.config.in_chans).permute(0, 3, 1, 2)
    picture = model.decoder(tokens.transpose(1, 2)[:, :, None])  # (1, C, p, N * q)
    return picture.unflatten(3, (-1, q)).permute(0, 3, 1, 2, 4)[0]


@pytest.mark.parametrize("name", ["learned", "swin", "mae", "simmim"])
def test_a_refused_size_leaves_the_model_as_it_was(name: str) -> None:
    model = built(name)
    before, config = dict(model.named_parameters()), model.config
    with pytest.raises(ConfigError):
        model.set_input_size(33, patch_size=4)
    with pytest.raises(ConfigError):
        model.set_in_chans(0)
    assert model.config == config
    assert all(parameter is before[key] for key, parameter in model.named_parameters())


def test_what_a_family_cannot_do_is_said() -> None:
    with pytest.raises(VitscopeError, match="ResNet has no patches"):
        built("resnet").set_input_size(32, patch_size=4)
    lstm = build_model(LSTMConfig())
    with pytest.raises(VitscopeError, match="LSTM are for 1 channels, and cannot be moved to 3"):
        lstm.set_in_chans(3)
    with pytest.raises(VitscopeError, match="LSTM has no patches"):
        lstm.set_input_size(28, patch_size=4)


@pytest.mark.parametrize("name", CONFIGS)
def test_on_meta_it_stays_on_meta(name: str) -> None:
    with torch.device("meta"):
        model = build_model(CONFIGS[name])
        patch = None if name not in PATCHED else 4
        model.set_input_size(64, patch_size=patch)
        model.set_in_chans(1)
    assert all(tensor.is_meta for tensor in [*model.parameters(), *model.buffers()])
