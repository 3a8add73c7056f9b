"""Where a token looks: the numbers are the model's own, and the picture shows something."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from vitscope.core.errors import InputError
from vitscope.data.config import half_normalised
from vitscope.data.photographs import builtin_picture
from vitscope.data.preprocess import preprocess
from vitscope.infer.attention_picture import attention_from, draw_attention
from vitscope.models.build import build_model
from vitscope.models.config import CNNConfig, MAEConfig, SwinConfig, ViTConfig, pair

SMALL: dict[str, Any] = {"img_size": 32, "patch_size": 8, "embed_dim": 32, "depth": 3, "num_heads": 4, "num_classes": 5}


def vit(**settings: Any) -> Any:
    torch.manual_seed(0)
    model = build_model(ViTConfig(**{**SMALL, **settings}))
    with torch.no_grad():
        for block in model.blocks:  # sharper than at the start, where all looks alike
            block.attn.qkv.weight.mul_(20)
    return model.eval()


def fitting(model: Any) -> Any:
    return half_normalised(pair(model.config.img_size), model.config.in_chans)


@torch.no_grad()
def true_maps(model: Any, picture: Image.Image, layer: int) -> torch.Tensor:
    """(heads, tokens, tokens) from the model itself."""
    return model.attention_maps(preprocess(picture, fitting(model))[None], [layer])[layer][0]


@pytest.fixture(scope="module")
def flower() -> Image.Image:
    return builtin_picture("flower")


MODELS: dict[str, dict[str, Any]] = {
    "class token": {},
    "registers": {"num_registers": 3},
    "distilled": {"distilled": True},
    "non-square": {"img_size": (32, 64), "patch_size": (8, 16)},
    "wide": {"img_size": (16, 64)},
    "rope": {"position": "rope"},
    "relative": {"position": "relative", "num_registers": 1},
    "heads per block": {"num_heads": (4, 2, 1), "head_dim": 8},
}


@pytest.mark.parametrize("settings", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("layer", [0, 2])
def test_the_class_tokens_look_is_row_0(settings: dict[str, Any], layer: int, flower: Image.Image) -> None:
    model = vit(**settings)
    maps, prefix = true_maps(model, flower, layer), model.config.num_prefix_tokens
    looks = attention_from(model, flower, fitting(model), layer=layer)
    assert looks.shape == (model.config.block_heads[layer], *model.config.grid_size)
    assert np.array_equal(looks.reshape(len(looks), -1), maps[:, 0, prefix:].numpy())
    left_out = maps[:, 0, :prefix].sum(dim=1).numpy()
    assert np.allclose(looks.sum(axis=(1, 2)) + left_out, 1, atol=1e-5)


@pytest.mark.parametrize("settings", [*MODELS.values(), {"class_token": False, "pool": "mean"}])
def test_a_patchs_look_is_its_own_row(settings: dict[str, Any], flower: Image.Image) -> None:
    model = vit(**settings)
    maps, cfg = true_maps(model, flower, 1), model.config
    down, across = cfg.grid_size
    for row, column in ((0, 0), (0, across - 1), (down - 1, 0), (1, 2), (down - 1, across - 1)):
        looks = attention_from(model, flower, fitting(model), layer=1, patch=(row, column))
        query = cfg.num_prefix_tokens + row * across + column
        assert np.array_equal(looks.reshape(len(looks), -1), maps[:, query, cfg.num_prefix_tokens :].numpy())


def test_a_patch_that_looks_at_itself_is_found_where_it_is() -> None:
    """Whatever order the code takes rows and columns in: here every token looks only at its own kind."""
    model = vit(img_size=(16, 32), position="none", depth=1, num_heads=1)
    with torch.no_grad():
        model.patch_embed.proj.bias.zero_()
        attn = model.blocks[0].attn
        attn.qkv.bias.zero_()
        attn.qkv.weight.zero_()
        attn.qkv.weight[:32] = attn.qkv.weight[32:64] = 10 * torch.eye(32)
    pixels = np.zeros((16, 32, 3), dtype=np.uint8)
    pixels[8:, 16:24] = np.random.default_rng(0).integers(0, 256, (8, 8, 3))  # row 1, column 2 differs from all others
    looks = attention_from(model, Image.fromarray(pixels), fitting(model), patch=(1, 2))[0]
    assert np.unravel_index(looks.argmax(), looks.shape) == (1, 2)
    assert looks.max() > 0.9


def test_layers_count_from_the_end_too(flower: Image.Image) -> None:
    model = vit()
    last = attention_from(model, flower, fitting(model))
    assert np.array_equal(last, attention_from(model, flower, fitting(model), layer=2))
    assert not np.array_equal(last, attention_from(model, flower, fitting(model), layer=0))


def test_grey_and_bf16_models_look_too(flower: Image.Image) -> None:
    model = vit(in_chans=1).to(torch.bfloat16)
    looks = attention_from(model, flower, fitting(model))
    assert looks.dtype == np.float32
    assert np.isfinite(looks).all()


def test_a_masked_model_looks_with_its_encoder(flower: Image.Image, tmp_path: Path) -> None:
    encoder = ViTConfig(**{**SMALL, "num_classes": 0, "position": "sincos"})
    torch.manual_seed(0)
    model = build_model(MAEConfig(encoder=encoder, decoder_embed_dim=16, decoder_depth=1, decoder_num_heads=2))
    preprocessing = half_normalised((32, 32), 3)
    looks = attention_from(model, flower, preprocessing)
    assert np.array_equal(looks, attention_from(model.encoder, flower, preprocessing))
    assert draw_attention(model, flower, preprocessing, tmp_path / "a.png", patch=(0, 0)).is_file()


def test_the_model_is_left_as_it_was(flower: Image.Image) -> None:
    model = vit(drop_rate=0.5, attn_drop_rate=0.5).train()
    model.blocks[0].eval()
    modes = [module.training for module in model.modules()]
    first, second = (attention_from(model, flower, fitting(model)) for _ in range(2))
    assert np.array_equal(first, second)  # looked without dropout
    with pytest.raises(InputError):
        attention_from(model, flower, fitting(model), layer=9)
    assert [module.training for module in model.modules()] == modes
    assert all(parameter.grad is None for parameter in model.parameters())


# --- the picture ------------------------------------------------------------------------------------------------


def drawn(path: Path) -> np.ndarray:
    with Image.open(path) as image:
        assert image.format == "PNG"
        return np.asarray(image.convert("RGB")).astype(float)


@pytest.mark.parametrize(
    ("settings", "patch"),
    [({}, None), ({"num_registers": 2}, (1, 2)), ({"img_size": (32, 48)}, (1, 5))],
    ids=["class token", "patch", "non-square"],
)
def test_the_picture_is_not_blank(
    settings: dict[str, Any], patch: tuple[int, int] | None, flower: Image.Image, tmp_path: Path
) -> None:
    model = vit(**settings)
    path = draw_attention(model, flower, fitting(model), tmp_path / "new" / "look.png", patch=patch)
    assert path == tmp_path / "new" / "look.png"
    pixels = drawn(path)
    assert min(pixels.shape[:2]) > 300
    inked = (pixels.min(axis=2) < 250).mean()
    assert 0.2 < inked < 0.95
    assert len(np.unique(pixels.reshape(-1, 3), axis=0)) > 500
    height, width = pixels.shape[:2]
    # The photograph is top left, its attention in the middle, a map per head below: none of them empty.
    for rows, columns in (((0.1, 0.4), (0, 0.3)), ((0.1, 0.4), (0.35, 0.6)), ((0.6, 0.95), (0, 0.2))):
        part = pixels[int(rows[0] * height) : int(rows[1] * height), int(columns[0] * width) : int(columns[1] * width)]
        assert (part.min(axis=2) < 250).mean() > 0.2


def test_the_patch_that_looks_is_framed_in_red(flower: Image.Image, tmp_path: Path) -> None:
    model = vit()

    def red(patch: tuple[int, int] | None) -> np.ndarray:
        pixels = drawn(draw_attention(model, flower, fitting(model), tmp_path / "look.png", patch=patch))
        return np.argwhere((pixels[..., 0] > 240) & (pixels[..., 1] < 20) & (pixels[..., 2] < 20))

    top_left, bottom_right = red((0, 0)).mean(axis=0), red((3, 3)).mean(axis=0)
    assert len(red(None)) == 0
    assert (bottom_right - top_left > 50).all()


def test_the_picture_follows_the_model(flower: Image.Image, tmp_path: Path) -> None:
    model = vit()
    a, b = (drawn(draw_attention(model, flower, fitting(model), tmp_path / "a.png", layer=i)) for i in (0, 2))
    assert a.shape == b.shape
    assert np.abs(a - b).max() > 50


# --- what is refused --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("patch", [(4, 0), (0, 4), (-1, 0), (0, -1)])
def test_a_patch_outside_the_grid(patch: tuple[int, int], flower: Image.Image) -> None:
    model = vit()
    with pytest.raises(InputError, match=r"patch: expected \(row, column\) within 4 x 4, received"):
        attention_from(model, flower, fitting(model), patch=patch)


def test_without_a_class_token_a_patch_is_needed(flower: Image.Image) -> None:
    model = vit(class_token=False, pool="mean")
    with pytest.raises(InputError, match="this model has no class token"):
        attention_from(model, flower, fitting(model))


@pytest.mark.parametrize("layer", [3, -4])
def test_a_layer_that_is_not_there(layer: int, flower: Image.Image, tmp_path: Path) -> None:
    model = vit()
    with pytest.raises(InputError, match="layers: expected numbers from -3 to 2"):
        draw_attention(model, flower, fitting(model), tmp_path / "look.png", layer=layer)
    assert list(tmp_path.iterdir()) == []


def test_preprocessing_for_another_size(flower: Image.Image) -> None:
    with pytest.raises(InputError, match=r"images: expected \(batch, 3, 32, 32\), received \(1, 3, 64, 64\)"):
        attention_from(vit(), flower, half_normalised((64, 64), 3))


@pytest.mark.parametrize(
    "config",
    [
        CNNConfig(img_size=16, in_chans=3, widths=(4,)),
        SwinConfig(img_size=32, embed_dim=16, depths=(2,), num_heads=(2,), window_size=4),
    ],
    ids=["cnn", "swin"],
)
def test_models_without_attention_over_the_whole_image(config: Any, flower: Image.Image) -> None:
    model = build_model(config)
    with pytest.raises(InputError, match="model: expected a ViT") as refused:
        attention_from(model, flower, half_normalised(pair(config.img_size), 3))
    assert refused.value.fix
