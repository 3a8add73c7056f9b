"""A loaded model moved to other pictures and classes: what changed is entered, with how, and nothing else changes."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from parity.random_weights import fill_with_large_random_weights
from vitscope.core.config import updated
from vitscope.core.errors import ConfigError, VitscopeError
from vitscope.models.build import build_model
from vitscope.models.config import (
    LSTMConfig,
    MAEConfig,
    ModelConfig,
    ResNetConfig,
    SimMIMConfig,
    SwinConfig,
    ViTConfig,
)
from vitscope.models.layers.resample import resample_channels, resample_patch_filter, resample_positions
from vitscope.weights.adapt import Resampling, adapt
from vitscope.weights.folder import save_model
from vitscope.weights.load import load_model

SMALL: dict[str, Any] = {"img_size": 32, "patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 4}
VIT = ViTConfig(**SMALL, num_classes=5)
MAE = MAEConfig(
    encoder=ViTConfig(**SMALL, num_classes=0, position="sincos"),
    decoder_embed_dim=16,
    decoder_depth=1,
    decoder_num_heads=2,
)
SIMMIM = SimMIMConfig(encoder=ViTConfig(**SMALL, num_classes=0))
SWIN = SwinConfig(img_size=32, patch_size=2, embed_dim=8, depths=(2, 2), num_heads=(2, 4), window_size=8, num_classes=5)
RESNET = ResNetConfig(img_size=32, depths=(1, 1), stem_width=8, num_classes=5)
PLAIN = Resampling()


def built(config: ModelConfig) -> Any:
    model = build_model(config).eval()
    fill_with_large_random_weights(model)
    return model


def adapted(config: ModelConfig, resampling: Resampling = PLAIN, **changes: Any) -> tuple[Any, dict[str, tuple]]:
    """The model, and name -> fate and words."""
    model = built(config)
    entries = adapt(model, updated(config, **changes), resampling)
    assert model.config == updated(config, **changes)
    rebuilt = build_model(model.config)
    rebuilt.load_state_dict(model.state_dict(), strict=True)
    for entry in entries:
        if entry.fate != "left out":
            assert entry.shape == tuple(model.state_dict()[entry.ours].shape)
    return model, {str(entry.ours): (entry.fate, entry.how) for entry in entries}


# --- what is entered ----------------------------------------------------------------------------------------------


def test_nothing_to_do_changes_nothing() -> None:
    model = built(VIT)
    before = dict(model.named_parameters())
    assert adapt(model, VIT, PLAIN) == []
    assert adapt(model, updated(VIT, img_size=(32, 32), patch_size=(8, 8)), PLAIN) == []
    assert all(parameter is before[name] for name, parameter in model.named_parameters())


@pytest.mark.parametrize(
    ("positions", "words"),
    [("bicubic_antialias", "bicubic with antialias, 4 x 4 -> 3 x 6"), ("bicubic", "bicubic, 4 x 4 -> 3 x 6")],
)
def test_another_size_moves_the_positions(positions: Any, words: str) -> None:
    model, said = adapted(VIT, Resampling(positions=positions), img_size=(24, 48))
    assert said == {"pos_embed": ("resampled", words)}
    wanted = resample_positions(
        built(VIT).pos_embed.detach(), (4, 4), (3, 6), num_prefix=1, antialias=positions == "bicubic_antialias"
    )
    assert torch.equal(model.pos_embed, wanted)


def test_a_grid_of_as_many_patches_is_another_grid() -> None:
    """The shape of the table is the same; its numbers are not."""
    _, said = adapted(VIT, img_size=(16, 64))
    assert said == {"pos_embed": ("resampled", "bicubic with antialias, 4 x 4 -> 2 x 8")}


@pytest.mark.parametrize(("method", "word"), [("pseudo_inverse", "pseudo-inverse"), ("area", "area")])
def test_image_and_patch_size_go_in_one_step(method: Any, word: str) -> None:
    model, said = adapted(VIT, Resampling(patch_filter=method), img_size=24, patch_size=4)
    assert said == {
        "pos_embed": ("resampled", "bicubic with antialias, 4 x 4 -> 6 x 6"),
        "patch_embed.proj.weight": ("resampled", f"{word}, 8 x 8 -> 4 x 4 pixels"),
    }
    old = built(VIT)
    assert torch.equal(model.pos_embed, resample_positions(old.pos_embed.detach(), (4, 4), (6, 6), num_prefix=1))
    filters = old.patch_embed.proj.weight.detach()
    assert torch.equal(model.patch_embed.proj.weight, resample_patch_filter(filters, (4, 4), method))


@pytest.mark.parametrize(
    ("method", "word"), [("sum", "summed"), ("mean", "the mean of all"), ("repeat", "repeated in turn")]
)
def test_channels(method: Any, word: str) -> None:
    model, said = adapted(VIT, Resampling(channels=method), in_chans=1)
    assert said == {"patch_embed.proj.weight": ("resampled", f"{word}, 3 -> 1 channels")}
    wanted = resample_channels(built(VIT).patch_embed.proj.weight.detach(), 1, method)
    assert torch.equal(model.patch_embed.proj.weight, wanted)


def test_more_channels_share() -> None:
    assert adapted(VIT, in_chans=4)[1] == {"patch_embed.proj.weight": ("resampled", "shared over 4 channels")}
    assert adapted(VIT, in_chans=2)[1] == {"patch_embed.proj.weight": ("resampled", "summed, 3 -> 2 channels")}


def test_patches_and_channels_together() -> None:
    _, said = adapted(VIT, patch_size=4, img_size=16, in_chans=1)
    words = "pseudo-inverse, 8 x 8 -> 4 x 4 pixels; summed, 3 -> 1 channels"
    assert said == {"patch_embed.proj.weight": ("resampled", words)}


@pytest.mark.parametrize("distilled", [False, True])
def test_other_classes_make_a_new_head_and_the_same_keep_it(distilled: bool) -> None:
    config = updated(VIT, distilled=distilled)
    model, said = adapted(config, num_classes=7)
    names = {"head.weight", "head.bias"} | ({"head_dist.weight", "head_dist.bias"} if distilled else set())
    assert said == dict.fromkeys(names, ("new", "a new head: 7 classes instead of 5"))
    assert model.head.weight.abs().max() < 0.15, "a fresh head is small"
    headless = updated(config, num_classes=0)
    assert set(adapted(headless, num_classes=7)[1].values()) == {("new", "a new head of 7 classes")}
    gone = adapted(config, num_classes=0)[1]
    assert gone == dict.fromkeys(names, ("left out", "features are wanted, not classes"))


def test_swin_moves_its_windows_and_filter() -> None:
    _, said = adapted(SWIN, img_size=16, patch_size=4)
    assert said["patch_embed.proj.weight"] == ("resampled", "pseudo-inverse, 2 x 2 -> 4 x 4 pixels")
    tables = {name: words for name, words in said.items() if name.endswith("bias_table")}
    assert len(tables) == 4
    assert tables["layers.0.blocks.0.attn.relative_position_bias_table"] == ("resampled", "bicubic, 225 -> 49 offsets")


def test_relative_tables() -> None:
    _, said = adapted(updated(VIT, position="relative"), img_size=16)
    assert set(said.values()) == {("resampled", "bicubic, 52 -> 12 offsets")}
    assert len(said) == 2


def test_a_resnet_takes_any_size_and_moves_its_channels() -> None:
    assert adapted(RESNET, img_size=64)[1] == {}
    assert adapted(RESNET, in_chans=1)[1] == {"conv1.weight": ("resampled", "summed, 3 -> 1 channels")}


@pytest.mark.parametrize(("config", "painter"), [(MAE, "decoder_pred"), (SIMMIM, "decoder.0")])
def test_a_masked_model_moves_its_encoder_and_what_paints(config: Any, painter: str) -> None:
    encoder = updated(config.encoder, img_size=24, patch_size=4, in_chans=1)
    model, said = adapted(config, encoder=encoder)
    assert model.encoder.config == encoder
    words = "resized as the picture it paints, 8 x 8 -> 4 x 4 pixels; mean or in turn, 3 -> 1 channels"
    assert said.pop(f"{painter}.weight") == said.pop(f"{painter}.bias") == ("resampled", words)
    read = said.pop("encoder.patch_embed.proj.weight")
    assert read == ("resampled", "pseudo-inverse, 8 x 8 -> 4 x 4 pixels; summed, 3 -> 1 channels")
    moved = {} if config is MAE else {"encoder.pos_embed": ("resampled", "bicubic with antialias, 4 x 4 -> 6 x 6")}
    assert said == moved


def test_what_a_family_cannot_do_is_refused() -> None:
    config = LSTMConfig(img_size=8, embed_dim=16)
    with pytest.raises(VitscopeError, match="cannot be moved to 3"):
        adapt(build_model(config), updated(config, in_chans=3), PLAIN)
    with pytest.raises(ConfigError, match="a width of 8"):
        adapt(build_model(config), updated(config, img_size=16), PLAIN)


def test_unknown_conventions_are_refused() -> None:
    with pytest.raises(ConfigError, match="positions: expected one of 'bicubic_antialias', 'bicubic'"):
        Resampling(positions="nearest")  # type: ignore[arg-type]


# --- through load_model -------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_model(built(VIT), tmp_path / "model", labels=["a", "b", "c", "d", "e"])


def test_load_moves_and_enters_where_each_tensor_comes_from(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "vitscope"):
        model = load_model(folder, img_size=24, patch_size=4, in_chans=1, num_classes=2)
    config = model.config
    assert (config.img_size, config.patch_size, config.in_chans, config.num_classes) == (24, 4, 1, 2)
    entries = {entry.ours: entry for entry in model.certificate.entries}
    assert list(entries) == list(model.state_dict())
    assert entries["pos_embed"].theirs == ("pos_embed",)
    assert entries["pos_embed"].their_shapes == ((1, 17, 32),)
    assert entries["pos_embed"].shape == (1, 37, 32)
    assert entries["head.weight"].fate == "new"
    assert model.certificate.backbone_covered == 1
    assert model.certificate.covered < 1
    assert model.preprocessing.in_chans == 1
    assert model.labels is None
    assert "pos_embed" in caplog.text
    assert "2 classes instead of 5" in caplog.text
    assert "2 resampled, 2 new" in model.certificate.summary


def test_the_summary_says_how_much_is_the_sources(folder: Path) -> None:
    whole = load_model(folder).certificate.summary
    assert whole == "32 tensors, 100 % of the backbone from the source: 32 matched"


def test_said_only_where_it_is_wanted(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "vitscope"):
        load_model(folder, num_classes=2, say=False)
    assert caplog.text == ""


def test_a_head_that_is_not_wanted_is_left_out_by_name(folder: Path) -> None:
    certificate = load_model(folder, num_classes=0).certificate
    left = certificate.of("left out")
    assert [entry.theirs for entry in left] == [("head.weight",), ("head.bias",)]
    assert {entry.ours for entry in left} == {None}
    assert certificate.is_whole
    assert certificate.covered == 1


def test_another_convention_through_load(folder: Path) -> None:
    plain = load_model(folder, img_size=48, resampling=Resampling(positions="bicubic"))
    wanted = resample_positions(built(VIT).pos_embed.detach(), (4, 4), (6, 6), num_prefix=1, antialias=False)
    assert torch.equal(plain.pos_embed, wanted)  # type: ignore[arg-type]


def test_other_settings_that_fit_are_taken_and_said(folder: Path) -> None:
    model = load_model(folder, config=updated(VIT, pool="mean", drop_rate=0.1, img_size=48, patch_size=4))
    assert (model.config.pool, model.config.drop_rate) == ("mean", 0.1)
    assert model.certificate.warnings == ("pool is 'mean' instead of 'cls'",)  # the head was trained on the other
    with pytest.raises(VitscopeError, match="strict: pool is 'mean'"):
        load_model(folder, config=updated(VIT, pool="mean"), strict=True)
    anew = load_model(folder, config=updated(VIT, pool="mean"), num_classes=3).certificate
    assert (anew.warnings, anew.remarks) == ((), ("pool is 'mean' instead of 'cls'",))


def test_a_masked_model_moves_through_load(tmp_path: Path) -> None:
    save_model(built(MAE), tmp_path / "mae")
    encoder = updated(MAE.encoder, img_size=48)
    model = load_model(tmp_path / "mae", config=updated(MAE, encoder=encoder, mask_ratio=0.5))
    assert model.config.encoder == encoder
    assert model.config.mask_ratio == 0.5
    with pytest.raises(ConfigError, match=r"model\.encoder\.depth: expected 2, as the weights have it, received 3"):
        load_model(tmp_path / "mae", config=updated(MAE, encoder=updated(encoder, depth=3)))


@pytest.mark.parametrize(
    ("config", "asked"),
    [(VIT, {"img_size": 48, "patch_size": 4, "in_chans": 1}), (RESNET, {"in_chans": 1}), (SWIN, {"in_chans": 1})],
)
def test_a_bare_file_of_other_pictures(tmp_path: Path, config: Any, asked: dict[str, Any]) -> None:
    """The file's own sizes are read off its shapes, and moved from there."""
    source = built(config)
    save_file(source.state_dict(), tmp_path / "bare.safetensors")
    found = load_model(tmp_path / "bare.safetensors", config=updated(config, **asked, num_classes=2))
    adapt(source, updated(config, **asked, num_classes=5), PLAIN)
    heads = tuple(found.classifiers())
    for name, tensor in source.state_dict().items():
        if not name.startswith(heads):
            assert torch.equal(tensor, found.state_dict()[name]), name
    assert found.config == updated(config, **asked, num_classes=2)
