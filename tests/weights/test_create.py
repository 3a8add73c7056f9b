"""`create_model`: any setting by its name, other people's names understood, nothing guessed."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import vitscope
from vitscope.core.config import updated
from vitscope.core.errors import ConfigError, UsageError
from vitscope.models.config import ViTConfig
from vitscope.models.variants import VARIANTS, list_models, model_config
from vitscope.models.vit import ViT
from vitscope.weights.create import create_model, with_settings


def test_a_name_alone_gives_the_table_row() -> None:
    model = create_model("vit_tiny")
    assert isinstance(model, ViT)
    assert model.config == model_config("vit_tiny")
    assert sum(parameter.numel() for parameter in model.parameters()) == 2_697_610


def test_any_setting_may_be_changed() -> None:
    model = create_model("vit_tiny", num_classes=7, img_size=(32, 64), depth=1, position="rope")
    assert model(torch.randn(2, 3, 32, 64)).shape == (2, 7)
    config = model.config
    assert (config.num_classes, config.img_size, config.depth, config.position) == (7, (32, 64), 1, "rope")
    assert config.embed_dim == 192


def test_the_table_row_stays_as_it_is() -> None:
    before = model_config("vit_tiny")
    create_model("vit_tiny", depth=1)
    assert model_config("vit_tiny") is before
    assert before.depth == 9  # type: ignore[union-attr]


def test_an_encoder_takes_a_dict_of_changes() -> None:
    encoder = {"depth": 1, "img_size": 32, "embed_dim": 32, "num_heads": 2}
    model = create_model("mae_vit_base_patch16", encoder=encoder, decoder_depth=1)
    assert len(model.encoder.blocks) == 1
    preset: Any = model_config("mae_vit_base_patch16")
    assert model.config.encoder.patch_size == preset.encoder.patch_size
    assert model.config.encoder.position == preset.encoder.position
    assert preset.encoder.depth == 12


def test_an_encoder_takes_a_config_too() -> None:
    encoder = ViTConfig(img_size=32, embed_dim=32, depth=1, num_heads=2, num_classes=0, position="sincos")
    assert with_settings(model_config("mae_vit_base_patch16"), {"encoder": encoder}).encoder == encoder  # type: ignore[union-attr]


def test_a_masked_model_hands_on_what_only_its_encoder_has() -> None:
    config: Any = with_settings(model_config("mae_vit_base_patch16"), {"img_size": 64, "depth": 2, "mask_ratio": 0.5})
    preset: Any = model_config("mae_vit_base_patch16")
    assert config.encoder == updated(preset.encoder, img_size=64, depth=2)
    assert (config.mask_ratio, config.decoder_depth) == (0.5, preset.decoder_depth)
    small = {"embed_dim": 32, "depth": 1, "num_heads": 2}
    model = create_model("simmim_vit_base_patch16_224", img_size=64, encoder=small)
    assert model(torch.randn(1, 3, 64, 64)).prediction.shape == (1, 3, 64, 64)


def test_a_masked_model_hands_on_to_the_encoder_given() -> None:
    encoder = ViTConfig(img_size=32, embed_dim=32, depth=1, num_heads=2, num_classes=0, position="sincos")
    config: Any = with_settings(model_config("mae_vit_base_patch16"), {"encoder": encoder, "img_size": 64})
    assert config.encoder == updated(encoder, img_size=64)
    with pytest.raises(ConfigError, match="encoder: expected ViTConfig, received 3"):
        with_settings(model_config("mae_vit_base_patch16"), {"encoder": 3, "img_size": 64})
    with pytest.raises(ConfigError, match=r"encoder\.num_classes: expected 0"):
        with_settings(model_config("mae_vit_base_patch16"), {"num_classes": 10})


@pytest.mark.parametrize(
    ("key", "fix"),
    [
        ("imgsize", "did you mean 'img_size'"),
        ("mask_ration", "did you mean 'mask_ratio'"),
        ("hidden_size", "you mean 'embed_dim'"),
        ("norm_pix_loss", "you mean 'normalize_pixels'"),
        ("qqqqqqqq", "they have: encoder, "),
    ],
)
def test_what_neither_the_masked_model_nor_its_encoder_has(key: str, fix: str) -> None:
    with pytest.raises(ConfigError, match=f"neither MAEConfig nor its encoder, ViTConfig, has a setting '{key}'") as no:
        create_model("mae_vit_base_patch16", **{key: 1})
    assert str(no.value.fix).startswith(fix)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("hidden_size", "embed_dim"),
        ("num_hidden_layers", "depth"),
        ("num_attention_heads", "num_heads"),
        ("intermediate_size", "mlp_dim"),
        ("hidden_act", "act"),
        ("hidden_dropout_prob", "drop_rate"),
        ("attention_probs_dropout_prob", "attn_drop_rate"),
        ("num_channels", "in_chans"),
        ("num_layers", "depth"),
        ("dim_feedforward", "mlp_dim"),
        ("in_channels", "in_chans"),
        ("dropout", "drop_rate"),
    ],
)
def test_other_peoples_words_are_understood(theirs: str, ours: str) -> None:
    with pytest.raises(ConfigError, match=f"ViTConfig has no setting '{theirs}'") as refused:
        create_model("vit_tiny", **{theirs: 4})
    assert refused.value.fix == f"you mean '{ours}'"


def test_other_peoples_words_inside_an_encoder() -> None:
    with pytest.raises(ConfigError) as refused:
        create_model("mae_vit_base_patch16", encoder={"hidden_size": 32})
    assert refused.value.fix == "you mean 'embed_dim'"


@pytest.mark.parametrize(
    ("settings", "fix"),
    [
        ({"dpeth": 3}, "did you mean 'depth'?"),
        ({"num_clases": 3}, "did you mean 'num_classes'"),
        ({"grid_size": (2, 2)}, "did you mean 'img_size'"),
    ],
)
def test_a_mistyped_setting_gets_a_did_you_mean(settings: dict[str, Any], fix: str) -> None:
    with pytest.raises(ConfigError) as refused:
        create_model("vit_tiny", **settings)
    assert str(refused.value.fix).startswith(fix)


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"depth": "3"}, "depth: expected int, received '3'"),
        ({"num_heads": 5}, "num_heads: expected a divisor of embed_dim 192, received 5"),
        ({"img_size": 33}, "img_size: expected a multiple of patch_size 4, received 33"),
        ({"pool": "sum"}, "pool: expected one of 'cls', 'mean', 'attention', received 'sum'"),
        ({"depth": -1}, "depth: expected a positive integer, received -1"),
        ({"num_classes": None}, "num_classes: expected int, received None"),
    ],
)
def test_a_wrong_value_says_what_was_expected(settings: dict[str, Any], what: str) -> None:
    with pytest.raises(ConfigError) as refused:
        create_model("vit_tiny", **settings)
    assert refused.value.what == what


def test_a_mistyped_name_gets_a_did_you_mean() -> None:
    with pytest.raises(UsageError, match="unknown model 'vit_tniy'") as refused:
        create_model("vit_tniy")
    assert refused.value.fix == "did you mean 'vit_tiny'?"


def test_settings_are_keyword_only() -> None:
    with pytest.raises(TypeError):
        create_model("vit_tiny", True)  # type: ignore[misc]


def test_a_registered_model_works_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(VARIANTS, "_entries", dict(VARIANTS._entries))
    vitscope.register_model("vit_mine", ViTConfig(img_size=32, embed_dim=32, depth=1, num_heads=2), "mine")
    assert "vit_mine" in list_models("vit_m*")
    assert create_model("vit_mine", num_classes=3).config.num_classes == 3
    with pytest.raises(UsageError, match="registered twice"):
        vitscope.register_model("vit_mine", ViTConfig())


def test_on_the_meta_device_it_takes_no_memory() -> None:
    with torch.device("meta"):
        model = create_model("vit_giant_patch14_dinov2")
    assert all(parameter.is_meta for parameter in model.parameters())
