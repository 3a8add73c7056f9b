"""Bad settings and bad inputs are refused in words: what was expected, what came, and what to do."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from vitscope.core.config import from_dict, updated
from vitscope.core.errors import ConfigError, InputError
from vitscope.core.yaml import from_yaml
from vitscope.models.config import CNNConfig, LSTMConfig, MAEConfig, ResNetConfig, SimMIMConfig, SwinConfig, ViTConfig
from vitscope.models.requirements import nearest_divisor
from vitscope.models.vit import ViT

# settings -> the whole first line, and a part of the remedy
BAD_VITS: list[tuple[dict[str, Any], str, str]] = [
    ({"num_heads": 7}, "num_heads: expected a divisor of embed_dim 768, received 7", "nearest that divides: 6"),
    (
        {"embed_dim": 100, "num_heads": 12},
        "expected a divisor of embed_dim 100, received 12",
        "nearest that divides: 10",
    ),
    ({"num_heads": 0}, "num_heads: expected positive numbers, received 0", ""),
    ({"num_heads": -4}, "num_heads: expected positive numbers, received -4", ""),
    ({"num_heads": (12, 12)}, "num_heads: expected 12 numbers, one per block, received (12, 12)", ""),
    ({"depth": 2, "num_heads": (4, 2)}, "head_dim: expected a number, because heads per block differ", "set head_dim"),
    ({"head_dim": 0}, "head_dim: expected a positive integer, received 0", ""),
    ({"img_size": 225}, "img_size: expected a multiple of patch_size 16, received 225", "nearest that fit: 224 or 240"),
    ({"img_size": (224, 100)}, "img_size: expected a multiple of patch_size 16, received 100", "96 or 112"),
    ({"img_size": 10}, "img_size: expected a multiple of patch_size 16, received 10", "nearest that fit: 16"),
    ({"patch_size": 15}, "img_size: expected a multiple of patch_size 15, received 224", "210 or 225"),
    ({"img_size": 0}, "img_size: expected a positive size, received 0", ""),
    ({"patch_size": 0}, "patch_size: expected a positive size, received 0", ""),
    ({"patch_size": (16, -1)}, "patch_size: expected a positive size, received (16, -1)", ""),
    ({"pool": "men"}, "pool: expected one of 'cls', 'mean', 'attention', received 'men'", "did you mean 'mean'?"),
    ({"position": "rotary"}, "position: expected one of 'learned', 'sincos', 'rope', 'relative', 'none', received", ""),
    ({"act": "gelo"}, "act: expected one of 'gelu', ", "did you mean 'gelu'?"),
    ({"norm_order": "sandwich"}, "norm_order: expected one of 'pre', 'post', received 'sandwich'", ""),
    ({"mlp": "swiglo"}, "mlp: expected one of 'mlp', 'swiglu', received 'swiglo'", "did you mean 'swiglu'?"),
    ({"init": "kaiming"}, "init: expected one of 'vit', 'jax', 'xavier', 'mimetic', received 'kaiming'", ""),
    ({"depth": -1}, "depth: expected a positive integer, received -1", ""),
    ({"depth": 0}, "depth: expected a positive integer, received 0", ""),
    ({"depth": 2.5}, "depth: expected int, received 2.5", ""),
    ({"depth": "12"}, "depth: expected int, received '12'", ""),
    ({"depth": True}, "depth: expected int, received True", ""),
    ({"embed_dim": 0}, "embed_dim: expected a positive integer, received 0", ""),
    ({"embed_dim": -768}, "embed_dim: expected a positive integer, received -768", ""),
    ({"in_chans": 0}, "in_chans: expected a positive integer, received 0", ""),
    ({"num_classes": -1}, "num_classes: expected 0 (features) or a positive integer, received -1", ""),
    ({"num_registers": -1}, "num_registers: expected 0 or a positive integer, received -1", ""),
    ({"norm_eps": 0.0}, "norm_eps: expected a small positive number, received 0.0", ""),
    ({"mlp_ratio": 0.0}, "mlp_ratio: expected a positive number, received 0.0", ""),
    ({"mlp_ratio": -4.0}, "mlp_ratio: expected a positive number, received -4.0", ""),
    ({"mlp_ratio": math.nan}, "mlp_ratio: expected a positive number, received nan", ""),
    ({"mlp_ratio": math.inf}, "mlp_ratio: expected a positive number, received inf", ""),
    ({"mlp_ratio": 0.0, "mlp_dim": 8}, "mlp_ratio: expected a positive number, received 0.0", ""),
    ({"mlp_dim": 0}, "mlp_dim: expected positive integers, received 0", ""),
    ({"mlp_dim": (64, 64)}, "mlp_dim: expected 12 numbers, one per block, received (64, 64)", ""),
    ({"drop_rate": 1.0}, "drop_rate: expected a share from 0 up to, not including, 1, received 1.0", ""),
    ({"attn_drop_rate": -0.1}, "attn_drop_rate: expected a share from 0 up to, not including, 1, received -0.1", ""),
    ({"drop_path_rate": 1.5}, "drop_path_rate: expected a share from 0 up to, not including, 1, received 1.5", ""),
    ({"head_drop_rate": math.nan}, "head_drop_rate: expected a share from 0 up to, not including, 1, received nan", ""),
    ({"class_token": False}, "class_token: expected True for pool='cls'", "pool to 'mean'"),
    ({"distilled": True, "pool": "mean"}, "pool: expected 'cls' for a distilled model, received 'mean'", ""),
    (
        {"position": "rope", "head_dim": 6},
        "head_dim: expected a multiple of 4, as rotary positions need, received 6",
        "",
    ),
    (
        {"position": "sincos", "embed_dim": 30, "num_heads": 3},
        "embed_dim: expected a multiple of 4, as sin-cos positions need, received 30",
        "",
    ),
    ({"pool": "attention", "head_dim": 50}, "head_dim: expected a divisor of embed_dim 768", ""),
]


@pytest.mark.parametrize(("settings", "what", "fix"), BAD_VITS, ids=lambda case: str(case)[:60])
def test_bad_vit_is_refused_in_words(settings: dict[str, Any], what: str, fix: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ViTConfig(**settings)
    assert what in caught.value.what
    assert "expected" in caught.value.what
    assert "received" in caught.value.what
    assert fix in (caught.value.fix or "")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("cls", "settings", "what"),
    [
        (SwinConfig, {"num_heads": (3, 6)}, "num_heads: expected 4 numbers, one per stage, received (3, 6)"),
        (SwinConfig, {"num_heads": (5, 6, 12, 24)}, "num_heads: expected divisors of the stage's width 96, received 5"),
        (SwinConfig, {"img_size": 230}, "img_size: expected a multiple of patch_size 4, received 230"),
        (SwinConfig, {"img_size": 244}, "img_size: expected a multiple of 32"),
        (SwinConfig, {"img_size": 256}, "expected stages whose sides are multiples of window_size 7"),
        (SwinConfig, {"depths": ()}, "depths: expected positive integers, received ()"),
        (SwinConfig, {"depths": (2, 0, 6, 2)}, "depths: expected positive integers, received (2, 0, 6, 2)"),
        (ResNetConfig, {"depths": (2, -2)}, "depths: expected positive integers, received (2, -2)"),
        (ResNetConfig, {"block": "botleneck"}, "block: expected one of 'basic', 'bottleneck', received 'botleneck'"),
        (ResNetConfig, {"stem_width": 0}, "stem_width: expected a positive integer, received 0"),
        (CNNConfig, {"img_size": 4}, "img_size: expected at least 8"),
        (CNNConfig, {"widths": ()}, "widths: expected positive integers, received ()"),
        (LSTMConfig, {"depth": 0}, "depth: expected a positive integer, received 0"),
        (LSTMConfig, {"embed_dim": 0}, "embed_dim: expected a positive integer, received 0"),
        (MAEConfig, {"mask_ratio": 1.0}, "mask_ratio: expected a share between 0 and 1, received 1.0"),
        (
            MAEConfig,
            {"decoder_num_heads": 7},
            "decoder_num_heads: expected a divisor of decoder_embed_dim 512, received 7",
        ),
        (MAEConfig, {"encoder": ViTConfig()}, "encoder.num_classes: expected 0, an encoder has no head, received 1000"),
        (
            MAEConfig,
            {"encoder": ViTConfig(num_classes=0, position="rope")},
            "encoder.position: expected 'sincos' or 'learned'",
        ),
        (SimMIMConfig, {"mask_ratio": 0.0}, "mask_ratio: expected a share between 0 and 1, received 0.0"),
        (
            SimMIMConfig,
            {"encoder": ViTConfig(num_classes=0, patch_size=(16, 8))},
            "encoder.patch_size: expected a square patch",
        ),
    ],
    ids=lambda case: str(case)[:60],
)
def test_bad_relatives_are_refused_in_words(cls: type, settings: dict[str, Any], what: str) -> None:
    with pytest.raises(ConfigError) as caught:
        cls(**settings)
    assert what in caught.value.what
    assert "received" in caught.value.what


def test_nearest_divisor_prefers_the_smaller_of_two() -> None:
    assert [nearest_divisor(768, wish) for wish in (5, 7, 11, 1000)] == [4, 6, 12, 768]


OTHER_WORDS = {
    "hidden_size": "embed_dim",
    "num_hidden_layers": "depth",
    "num_attention_heads": "num_heads",
    "intermediate_size": "mlp_dim",
    "hidden_act": "act",
    "hidden_dropout_prob": "drop_rate",
    "attention_probs_dropout_prob": "attn_drop_rate",
    "num_channels": "in_chans",
    "num_layers": "depth",
    "dim_feedforward": "mlp_dim",
    "in_channels": "in_chans",
    "dropout": "drop_rate",
    "image_size": "img_size",
}


@pytest.mark.parametrize(("theirs", "ours"), OTHER_WORDS.items())
def test_other_peoples_words_are_understood(theirs: str, ours: str) -> None:
    """In Python, in dicts, in YAML and in changes alike."""
    for attempt in (
        lambda: ViTConfig(**{theirs: 1}),
        lambda: from_dict(ViTConfig, {theirs: 1}),
        lambda: from_yaml(ViTConfig, f"{theirs}: 1"),
        lambda: updated(ViTConfig(), **{theirs: 1}),
    ):
        with pytest.raises(ConfigError, match=f"ViTConfig has no setting '{theirs}'") as caught:
            attempt()
        assert caught.value.fix == f"you mean '{ours}'"


def test_a_mistyped_setting_gets_a_did_you_mean() -> None:
    with pytest.raises(ConfigError, match="no setting 'num_head'") as caught:
        ViTConfig(num_head=3)  # type: ignore[call-arg]
    assert caught.value.fix == "did you mean 'num_heads'?"


@pytest.fixture(scope="module")
def model() -> ViT:
    return ViT(ViTConfig(img_size=(8, 12), patch_size=4, embed_dim=16, depth=1, num_heads=2, num_classes=3)).eval()


@pytest.mark.parametrize(
    ("shape", "fix"),
    [
        ((2, 1, 8, 12), "build the model with in_chans=1"),
        ((2, 8, 12, 3), "channels come first: images.permute(0, 3, 1, 2)"),
        ((2, 3, 12, 8), "call set_input_size((12, 8))"),
        ((2, 3, 16, 12), "call set_input_size((16, 12))"),
        ((3, 8, 12), "add a batch axis: images.unsqueeze(0)"),
        ((2, 5, 3, 8, 12), "give a batch of images"),
        ((8, 12), "give a batch of images"),
    ],
)
@pytest.mark.parametrize("method", ["forward", "forward_features", "attention_maps", "forward_intermediates"])
def test_wrong_images_are_refused_in_words(model: ViT, method: str, shape: tuple[int, ...], fix: str) -> None:
    with pytest.raises(InputError) as caught:
        getattr(model, method)(torch.zeros(shape))
    assert caught.value.what == f"images: expected (batch, 3, 8, 12), received {shape}"
    assert fix in (caught.value.fix or "")


def test_a_refused_class_count_leaves_the_head(model: ViT) -> None:
    with pytest.raises(ConfigError, match=r"num_classes: expected 0 \(features\) or a positive integer, received -2"):
        model.reset_classifier(-2)
    assert model(torch.zeros(1, 3, 8, 12)).shape == (1, 3)
