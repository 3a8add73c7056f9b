"""Settings beside weights may say anything: numbers no model has are refused at once, before anything is built."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import save_file

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
)
from vitscope.weights.folder import save_model
from vitscope.weights.load import load_model

TINY: dict[str, Any] = {"img_size": 32, "patch_size": 16, "embed_dim": 16, "depth": 1, "num_heads": 2}


def vit(**changes: Any) -> ViTConfig:
    return ViTConfig(**{**TINY, "num_classes": 3, **changes})


def test_large_pictures_where_no_table_has_a_row_for_each_patch() -> None:
    SwinConfig(img_size=(2048, 3072), patch_size=4, window_size=8)
    for position in ("rope", "none"):
        vit(img_size=(16 * 512, 16 * 1024), position=position)
    for position in ("learned", "sincos"):
        with pytest.raises(ConfigError, match="at most 262,144 patches"):
            vit(img_size=(16 * 512, 16 * 1024), position=position)
    with pytest.raises(ConfigError, match="at most 4,194,304 patches"):
        vit(img_size=16 * 2049, position="rope")


def test_only_pairs_of_patches_have_a_relative_position() -> None:
    vit(img_size=16 * 128, position="relative", num_registers=4)
    with pytest.raises(ConfigError, match="at most 16,384 patches"):
        vit(img_size=16 * 129, position="relative")


MODELS: dict[str, ModelConfig] = {
    "vit": vit(),
    "sincos": vit(position="sincos"),
    "rope": vit(position="rope"),
    "relative": vit(position="relative"),
    "swin": SwinConfig(img_size=32, embed_dim=8, depths=(1, 1), num_heads=(1, 2), window_size=4, num_classes=3),
    "resnet": ResNetConfig(img_size=32, depths=(1, 1), num_classes=3),
    "cnn": CNNConfig(widths=(4, 8)),
    "lstm": LSTMConfig(embed_dim=8, depth=1),
    "mae": MAEConfig(encoder=vit(position="sincos", num_classes=0), decoder_embed_dim=16, decoder_depth=1,
                     decoder_num_heads=2),
    "simmim": SimMIMConfig(encoder=vit(num_classes=0)),
}  # fmt: skip
ABSURD = [
    ("vit", {"depth": 1_000_000}),
    ("vit", {"depth": 900}),
    ("vit", {"img_size": 960_000}),
    ("sincos", {"img_size": 960_000}),
    ("sincos", {"img_size": 65_536}),
    ("rope", {"img_size": 65_536}),
    ("relative", {"img_size": 8_192}),
    ("swin", {"depths": [100_000, 100_000]}),
    ("swin", {"depths": [1] * 1000, "num_heads": [1] * 1000}),
    ("swin", {"num_heads": [1] * 100_000}),
    ("swin", {"img_size": 1_000_000, "patch_size": 1, "window_size": 1_000_000}),
    ("swin", {"img_size": 1_024, "window_size": 256}),
    ("resnet", {"depths": [1_000_000]}),
    ("resnet", {"depths": [1] * 1000}),
    ("cnn", {"widths": [1] * 100_000}),
    ("lstm", {"depth": 1_000_000}),
    ("lstm", {"depth": 900}),
    ("mae", {"decoder_depth": 1_000_000}),
    ("mae", {"decoder_depth": 900}),
    ("mae", {"encoder": {"img_size": 65_536}}),
    ("simmim", {"encoder": {"depth": 1_000_000}}),
]


def merged(settings: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    nested = {key: {**settings[key], **value} for key, value in changes.items() if isinstance(value, dict)}
    return {**settings, **changes, **nested}


@pytest.mark.parametrize(("name", "changes"), ABSURD, ids=lambda value: str(value)[:40])
def test_absurd_settings_are_refused_at_once(
    name: str, changes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save_model(build_model(MODELS[name]), tmp_path / "model")
    (folder / "preprocessing.json").unlink()
    described = json.loads((folder / "config.json").read_text())
    described["config"] = merged(described["config"], changes)
    (folder / "config.json").write_text(json.dumps(described))
    monkeypatch.setattr("vitscope.weights.read.build_model", lambda config: pytest.fail("a network was built"))
    with pytest.raises(VitscopeError) as refused:
        load_model(folder)
    assert len(str(refused.value)) < 1000


def test_a_deep_config_for_a_file_of_few_tensors(tmp_path: Path) -> None:
    save_file(build_model(vit()).state_dict(), tmp_path / "a.safetensors")
    with pytest.raises(VitscopeError, match="it has 700 blocks, and there are 20 tensors in all"):
        load_model(tmp_path / "a.safetensors", config=vit(depth=700))


def test_what_is_missing_may_still_begin_anew(tmp_path: Path) -> None:
    state = build_model(vit()).state_dict()
    save_file({name: state[name] for name in ("cls_token", "patch_embed.proj.weight")}, tmp_path / "a.safetensors")
    model = load_model(tmp_path / "a.safetensors", config=vit(depth=3, num_classes=0), allow_partial=True, say=False)
    assert len(model.certificate.of("matched")) == 2


def test_all_blocks_in_one_array_are_no_few_tensors(tmp_path: Path) -> None:
    """Google's stacked files have as many names for 50 blocks as for one."""
    from vitscope.weights.files import read_file
    from vitscope.weights.formats.google import GOOGLE

    arrays: dict[str, Any] = {"params/embedding/kernel": np.zeros((2, 2, 3, 4), np.float32)}
    arrays["params/Transformer/encoderblock/LayerNorm_0/scale"] = np.zeros((50, 4), np.float32)
    np.savez(tmp_path / "a.npz", **arrays)
    assert GOOGLE.most_blocks(read_file(tmp_path / "a.npz")) == 50


def test_usual_large_settings_are_no_absurd_ones() -> None:
    ViTConfig(img_size=4096, patch_size=8)
    ViTConfig(img_size=1024, patch_size=8, position="relative", class_token=False, pool="mean")
    SwinConfig(img_size=1536, window_size=24, patch_size=4)
    ViTConfig(depth=1000, num_classes=0)
    with pytest.raises(ConfigError, match="depth: expected at most 1,000, received 1001"):
        ViTConfig(depth=1001)
