"""Where training begins: weights taken from a folder are its bit for bit, all else is what the section asks for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from vitscope.core.errors import ConfigError, VitscopeError
from vitscope.data.config import PreprocessConfig
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
)
from vitscope.models.layers.drop import DropPath
from vitscope.models.layers.resample import resample_positions
from vitscope.train.config import ModelSection, named_model
from vitscope.train.start import starting_model
from vitscope.weights.adapt import Resampling, adapt
from vitscope.weights.folder import save_model

NAMES = ["ant", "bee", "cat", "dog", "eel"]
SMALL = {"img_size": 16, "patch_size": 4, "embed_dim": 16, "depth": 2, "num_heads": 2, "num_classes": 5}
VIT = ViTConfig(**SMALL)  # type: ignore[arg-type]

FAMILIES: dict[str, ModelConfig] = {
    "vit": VIT,
    "distilled": ViTConfig(**SMALL, distilled=True, num_registers=2),  # type: ignore[arg-type]
    "relative": ViTConfig(**SMALL, position="relative"),  # type: ignore[arg-type]
    "swin": SwinConfig(img_size=32, embed_dim=16, depths=(2, 2), num_heads=(2, 2), window_size=4, num_classes=5),
    "resnet": ResNetConfig(img_size=32, depths=(1, 1), stem_width=8, num_classes=5),
    "cnn": CNNConfig(img_size=16, widths=(4, 8), num_classes=5),
    "lstm": LSTMConfig(img_size=8, embed_dim=16, num_classes=5),
}


def section(config: ModelConfig = VIT, **settings: Any) -> ModelSection:
    return named_model("mine", config).changed(**settings)


def saved(folder: Path, config: ModelConfig = VIT, labels: list[str] | None = None) -> Any:
    """A model whose every tensor differs from what building alone gives, as a folder."""
    torch.manual_seed(7)
    model: Any = build_model(config).eval()
    with torch.no_grad():
        for tensor in model.state_dict().values():
            tensor.add_(torch.rand_like(tensor) * 0.1 if tensor.is_floating_point() else 7)
    save_model(model, folder, labels=labels)
    return model


def heads(model: Any) -> set[str]:
    return {name for name in model.state_dict() if name.startswith(tuple(model.classifiers()))}


def same(first: Any, second: Any, names: set[str]) -> list[bool]:
    return [torch.equal(first.state_dict()[name], second.state_dict()[name]) for name in sorted(names)]


@pytest.mark.parametrize("family", FAMILIES)
def test_without_weights_it_is_the_section_with_the_datas_classes(family: str) -> None:
    torch.manual_seed(3)
    model, remarks = starting_model(section(FAMILIES[family]), num_classes=3, init_from=None, labels=NAMES[:3])
    torch.manual_seed(3)
    wanted = build_model(section(FAMILIES[family], num_classes=3).bare)
    assert all(same(model, wanted, set(wanted.state_dict())))
    assert model.num_classes == 3
    assert model.labels == NAMES[:3]
    assert remarks == []
    assert type(model.config) is type(FAMILIES[family])  # without the section's name, as it is saved


@pytest.mark.parametrize("family", FAMILIES)
def test_the_same_classes_take_every_weight(tmp_path: Path, family: str) -> None:
    config = FAMILIES[family]
    source = saved(tmp_path / "model", config, NAMES)
    model, remarks = starting_model(section(config), num_classes=5, init_from=str(tmp_path / "model"), labels=NAMES)
    assert all(same(model, source, set(source.state_dict())))
    assert any("with their head" in remark for remark in remarks)
    assert model.config == config
    assert model.training


@pytest.mark.parametrize("family", FAMILIES)
def test_other_classes_get_a_new_head_and_the_rest_is_taken(tmp_path: Path, family: str) -> None:
    config = FAMILIES[family]
    source = saved(tmp_path / "model", config, NAMES)
    torch.manual_seed(3)
    model, remarks = starting_model(section(config), num_classes=3, init_from=str(tmp_path / "model"), labels=NAMES[:3])
    torch.manual_seed(3)
    fresh = build_model(section(config, num_classes=3).bare)
    assert all(same(model, source, set(model.state_dict()) - heads(model)))
    assert heads(model)
    assert all(same(model, fresh, heads(model)))
    assert not all(same(model, fresh, set(fresh.state_dict()) - heads(model)))
    assert any("3 classes instead of 5" in remark for remark in remarks)


def test_as_many_classes_of_other_names_get_a_new_head(tmp_path: Path) -> None:
    source = saved(tmp_path / "model", labels=NAMES)
    others = ["ant", "bee", "owl", "dog", "eel"]
    model, remarks = starting_model(section(), num_classes=5, init_from=str(tmp_path / "model"), labels=others)
    assert not any(same(model, source, {"head.weight", "head.bias"}))
    assert model.head.weight.abs().max() < 0.15, "a fresh head is small"  # type: ignore[union-attr]
    assert any("'owl' instead of 'cat'" in remark for remark in remarks)
    assert any(remark.endswith(" matched, 2 new") for remark in remarks), "what was not taken does not count as matched"
    assert model.labels == others


@pytest.mark.parametrize("distilled", [False, True])
def test_classes_in_another_order_keep_their_rows(tmp_path: Path, distilled: bool) -> None:
    config = FAMILIES["distilled" if distilled else "vit"]
    source = saved(tmp_path / "model", config, labels=NAMES)
    turned = NAMES[::-1]
    model, remarks = starting_model(section(config), num_classes=5, init_from=str(tmp_path / "model"), labels=turned)
    images = torch.randn(2, 3, 16, 16)
    torch.testing.assert_close(model.eval()(images), source(images).flip(-1))
    assert any("order" in remark for remark in remarks)


def test_another_size_is_set_and_positions_resampled(tmp_path: Path) -> None:
    source = saved(tmp_path / "model", labels=NAMES)
    init_from = str(tmp_path / "model")
    model, remarks = starting_model(section(img_size=24), num_classes=5, init_from=init_from, labels=NAMES)
    wanted = resample_positions(source.pos_embed.detach(), (4, 4), (6, 6), num_prefix=1)
    torch.testing.assert_close(model.pos_embed.detach(), wanted)  # type: ignore[union-attr]
    assert all(same(model, source, set(source.state_dict()) - {"pos_embed"}))
    assert any("24 x 24 instead of 16 x 16" in remark for remark in remarks)
    assert model(torch.randn(1, 3, 24, 24)).shape == (1, 5)


@pytest.mark.parametrize("family", ["vit", "distilled", "relative", "swin"])
def test_other_patches_and_channels_are_resampled_and_said(tmp_path: Path, family: str) -> None:
    """In one step with the size: what `adapt` makes of the source, and not through a grid between."""
    config = FAMILIES[family]
    source = saved(tmp_path / "model", config, NAMES)
    changes = {"img_size": 48, "patch_size": 6, "in_chans": 1}
    if family == "swin":
        changes["img_size"] = 96
    asked = section(config, **changes)
    model, remarks = starting_model(asked, num_classes=5, init_from=str(tmp_path / "model"), labels=NAMES)
    adapt(source, asked.bare, Resampling())
    assert all(same(model, source, set(source.state_dict())))
    assert model.config == asked.bare
    old, new = config.patch_size, 6  # type: ignore[union-attr]
    words = f"pseudo-inverse, {old} x {old} -> {new} x {new} pixels; summed, 3 -> 1 channels"
    assert f"patch_embed.proj.weight resampled: {words}" in remarks
    assert any("with their head of 5 classes" in remark for remark in remarks)


def test_the_certificates_summary_is_said(tmp_path: Path) -> None:
    saved(tmp_path / "model", labels=NAMES)
    init_from = str(tmp_path / "model")
    _, remarks = starting_model(section(img_size=24), num_classes=3, init_from=init_from, labels=NAMES[:3])
    counts = "29 matched, 1 resampled, 2 new"
    assert f"32 tensors, 100 % of the backbone from the source: {counts}" in remarks


def test_nothing_is_said_twice(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    saved(tmp_path / "model", labels=NAMES)
    starting_model(section(img_size=24), num_classes=3, init_from=str(tmp_path / "model"), labels=NAMES[:3])
    assert caplog.text == ""


def test_channels_a_family_cannot_be_moved_to_are_refused(tmp_path: Path) -> None:
    saved(tmp_path / "model", FAMILIES["lstm"])
    with pytest.raises(VitscopeError, match="LSTM are for 1 channels, and cannot be moved to 3"):
        starting_model(
            section(FAMILIES["lstm"], in_chans=3), num_classes=5, init_from=str(tmp_path / "model"), labels=None
        )


@pytest.mark.parametrize("family", ["vit", "distilled", "swin", "resnet"])
@pytest.mark.parametrize("classes", [5, 3])
def test_a_bare_file_belongs_to_the_sections_model(tmp_path: Path, family: str, classes: int) -> None:
    """As others write it: only tensors, in a checkpoint of their trainer."""
    config = FAMILIES[family]
    source = saved(tmp_path / "model", config)
    torch.save({"model": source.state_dict(), "epoch": 3}, tmp_path / "bare.pth")
    init_from = str(tmp_path / "bare.pth")
    model, remarks = starting_model(section(config), num_classes=classes, init_from=init_from, labels=NAMES[:classes])
    kept = set(model.state_dict()) - (heads(model) if classes == 3 else set())
    assert all(same(model, source, kept))
    kept_head = "with their head of 5 classes, taken for those of the data: the weights do not name theirs"
    assert (kept_head if classes == 5 else "a new head: 3 classes instead of 5") in remarks
    assert "of the checkpoint, its 'model'" in remarks


def test_a_bare_file_of_other_layers_is_refused(tmp_path: Path) -> None:
    source = saved(tmp_path / "model")
    torch.save(source.state_dict(), tmp_path / "bare.pth")
    with pytest.raises(VitscopeError, match=r"the weights do not fit the config; 12 missing: blocks\.2") as caught:
        starting_model(section(depth=3), num_classes=5, init_from=str(tmp_path / "bare.pth"), labels=None)
    assert str(caught.value.where).startswith("checkpoint.init_from (--from): ")
    assert "--model" in str(caught.value.fix)
    assert "partial" not in str(caught.value.fix)  # there is no such flag here


def test_a_masked_model_gives_its_encoder_at_another_size(tmp_path: Path) -> None:
    encoder = ViTConfig(**{**SMALL, "num_classes": 0})  # type: ignore[arg-type]
    source = saved(tmp_path / "model", SimMIMConfig(encoder=encoder))
    asked = section(img_size=24)
    model, remarks = starting_model(asked, num_classes=5, init_from=str(tmp_path / "model"), labels=NAMES)
    source.encoder.set_input_size(24)
    assert all(same(model, source.encoder, set(source.encoder.state_dict())))
    assert model.preprocessing.img_size == (24, 24)
    assert "pictures of 24 x 24 instead of 16 x 16" in remarks
    assert "pos_embed resampled: bicubic with antialias, 4 x 4 -> 6 x 6" in remarks
    assert any("29 matched, 1 resampled, 2 new" in remark for remark in remarks)


def test_what_has_no_weights_is_the_sections(tmp_path: Path) -> None:
    saved(tmp_path / "model", labels=NAMES)
    asked = section(drop_rate=0.3, drop_path_rate=0.2, head_drop_rate=0.1, init="xavier")
    model: Any = starting_model(asked, num_classes=5, init_from=str(tmp_path / "model"), labels=NAMES)[0]
    assert model.head_drop.p == 0.1
    assert model.pos_drop.p == 0.3
    rates = [module.rate for module in model.modules() if isinstance(module, DropPath)]
    assert max(rates) == 0.2
    assert model.config == asked.bare


def test_the_preprocessing_of_the_weights_is_carried(tmp_path: Path) -> None:
    torch.manual_seed(0)
    seen = PreprocessConfig(img_size=(16, 16), mean=(0.1, 0.2, 0.3))
    save_model(build_model(VIT), tmp_path / "model", preprocessing=seen)
    model, _ = starting_model(section(), num_classes=5, init_from=str(tmp_path / "model"), labels=None)
    assert model.preprocessing == seen
    assert model.labels is None


def test_equal_layers_in_other_words_are_equal(tmp_path: Path) -> None:
    source = saved(tmp_path / "model")
    asked = section(num_heads=(2, 2), head_dim=8, mlp_dim=(64, 64), mlp_ratio=2.0, act="gelu", patch_size=(4, 4))
    model, _ = starting_model(asked, num_classes=5, init_from=str(tmp_path / "model"), labels=None)
    assert all(same(model, source, set(source.state_dict())))


@pytest.mark.parametrize(
    ("key", "value", "old"),
    [
        ("depth", 3, "2"),
        ("embed_dim", 32, "16"),
        ("num_heads", 4, "2"),
        ("position", "sincos", "'learned'"),
        ("norm_eps", 1e-5, "1e-06"),
        ("mlp_ratio", 2.0, r"\(64, 64\)"),
        ("act", "relu", "None"),
        ("layer_scale", 0.1, "None"),
        ("pool", "attention", "'cls'"),
        ("qkv_bias", False, "True"),
    ],
)
def test_other_layers_are_refused_by_name_and_both_values(tmp_path: Path, key: str, value: Any, old: str) -> None:
    saved(tmp_path / "model")
    named = {"mlp_ratio": "mlp_dim"}.get(key, key)
    with pytest.raises(
        ConfigError, match=rf"model\.{named}: expected {old}, as the weights have it, received"
    ) as error:
        starting_model(section(**{key: value}), num_classes=5, init_from=str(tmp_path / "model"), labels=None)
    assert str(tmp_path / "model") in str(error.value)


def test_where_layer_scale_begins_is_no_layer(tmp_path: Path) -> None:
    source = saved(tmp_path / "model", ViTConfig(**SMALL, layer_scale=0.1))  # type: ignore[arg-type]
    model, _ = starting_model(section(layer_scale=0.5), num_classes=5, init_from=str(tmp_path / "model"), labels=None)
    assert all(same(model, source, set(source.state_dict())))


def test_another_family_is_refused(tmp_path: Path) -> None:
    saved(tmp_path / "model", FAMILIES["cnn"])
    with pytest.raises(ConfigError, match="'cnn', of which the weights are, received 'vit'"):
        starting_model(section(), num_classes=5, init_from=str(tmp_path / "model"), labels=None)


def test_mean_instead_of_class_token_is_allowed_and_said(tmp_path: Path) -> None:
    saved(tmp_path / "model")
    model, remarks = starting_model(section(pool="mean"), num_classes=5, init_from=str(tmp_path / "model"), labels=None)
    assert model.config.pool == "mean"
    assert any("'mean' instead of 'cls'" in remark for remark in remarks)


@pytest.mark.parametrize("kind", ["mae", "simmim"])
def test_a_masked_model_gives_its_encoder(tmp_path: Path, kind: str) -> None:
    encoder = ViTConfig(**{**SMALL, "num_classes": 0}, position="sincos")  # type: ignore[arg-type]
    masked: Any = SimMIMConfig(encoder=encoder)
    if kind == "mae":
        masked = MAEConfig(encoder=encoder, decoder_embed_dim=16, decoder_depth=1, decoder_num_heads=2)
    source = saved(tmp_path / "model", masked)
    asked = section(position="sincos", pool="mean")
    model, remarks = starting_model(asked, num_classes=5, init_from=str(tmp_path / "model"), labels=NAMES)
    assert all(same(model, source.encoder, set(source.encoder.state_dict())))
    assert any("encoder" in remark for remark in remarks)
    assert any("head of 5" in remark for remark in remarks)
    assert model(torch.randn(2, 3, 16, 16)).shape == (2, 5)


def test_a_model_that_paints_is_no_classifier() -> None:
    with pytest.raises(ConfigError, match="a model that classifies"):
        starting_model(named_model("mae_vit_base_patch16"), num_classes=5, init_from=None, labels=None)


def test_weights_of_a_run_and_of_nothing(tmp_path: Path) -> None:
    source = saved(tmp_path / "run" / "model", labels=NAMES)
    (tmp_path / "run" / "metrics.jsonl").write_text("")
    model, _ = starting_model(section(), num_classes=5, init_from=str(tmp_path / "run"), labels=NAMES)
    assert all(same(model, source, set(source.state_dict())))
    with pytest.raises(VitscopeError, match="not a saved model"):
        starting_model(section(), num_classes=5, init_from=str(tmp_path / "nothing"), labels=NAMES)


def test_the_files_are_not_the_models_memory(tmp_path: Path) -> None:
    source = saved(tmp_path / "model", labels=NAMES)
    model, _ = starting_model(section(), num_classes=5, init_from=str(tmp_path / "model"), labels=NAMES)
    with torch.no_grad():
        model.head.weight.zero_()  # type: ignore[union-attr]
    again, _ = starting_model(section(), num_classes=5, init_from=str(tmp_path / "model"), labels=NAMES)
    assert torch.equal(again.head.weight, source.head.weight)  # type: ignore[union-attr]
