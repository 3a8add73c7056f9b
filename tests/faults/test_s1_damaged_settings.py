"""S1: timm and Hugging Face folders whose JSON says what it cannot mean. Each is refused in words, or loads."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vitscope.core.errors import VitscopeError
from vitscope.models.build import build_model
from vitscope.models.config import MAEConfig, ModelConfig, SwinConfig, ViTConfig
from vitscope.weights.formats import huggingface_folder, timm_folder
from vitscope.weights.load import load_model
from vitscope.weights.source import open_source

VIT = ViTConfig(img_size=16, patch_size=8, embed_dim=16, depth=1, num_heads=2, num_classes=3)
DINO = ViTConfig(img_size=16, patch_size=8, embed_dim=16, depth=1, num_heads=2, num_classes=0, layer_scale=0.1)
SWIN = SwinConfig(img_size=32, patch_size=4, embed_dim=8, depths=(1, 1), num_heads=(1, 2), window_size=4, num_classes=3)
MAE = MAEConfig(
    encoder=ViTConfig(img_size=16, patch_size=8, embed_dim=16, depth=1, num_heads=2, num_classes=0, position="sincos"),
    decoder_embed_dim=8,
    decoder_depth=1,
    decoder_num_heads=2,
)
BAD: tuple[Any, ...] = (
    "x" * 300,
    [],
    [[1], {}],
    {},
    {"a": [1]},
    True,
    0,
    -1,
    0.5,
    10**400,
    float("nan"),
    float("inf"),
    "1e999",
    "\x1b[2J",
)
TIMM_ARGUMENTS = {
    "embed_dim": 16,
    "act_layer": "gelu",
    "init_values": 0.1,
    "mlp_ratio": 4.0,
    "global_pool": "token",
    "norm_layer": "layernorm",
    "drop_rate": 0.0,
    "pos_drop_rate": 0.0,
    "proj_drop_rate": 0.0,
    "attn_drop_rate": 0.0,
    "drop_path_rate": 0.0,
    "reg_tokens": 0,
    "no_embed_class": False,
    "pos_embed": "learn",
    "pre_norm": False,
    "fc_norm": False,
    "qkv_bias": True,
    "qk_norm": False,
    "class_token": True,
    "in_chans": 3,
    "num_classes": 3,
    "anything": 1,
}
HUGGING_FACE_KEYS = ("head_dim", "drop_path_rate", "id2label", "decoder_intermediate_size", "encoder_stride")
PICTURE_KEYS = ("do_center_crop", "crop_size", "do_pad", "image_processor_type", "feature_extractor_type")


def written(folder: Path, config: ModelConfig, to: str) -> Path:
    model = build_model(config)
    folder.mkdir()
    (timm_folder if to == "timm" else huggingface_folder).save_folder(model, folder)
    return folder


def damaged(content: dict[str, Any], *more: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every key with every bad value, one at a time."""
    for key in (*content, *more):
        for value in BAD:
            yield key, {**content, key: value}


def refused_or_loaded(folder: Path, file: str, cases: Iterator[tuple[str, dict[str, Any]]]) -> Counter[str]:
    """What became of all; anything but a refusal in words is an error."""
    before, count = (folder / file).read_text(), Counter[str]()
    plain = open_source(folder).config
    for key, content in cases:
        (folder / file).write_text(json.dumps(content))
        try:
            if open_source(folder).config != plain:  # loading takes time, and the same settings give the same model
                load_model(folder, say=False)
            count["loaded"] += 1
        except VitscopeError as error:
            count["refused"] += 1
            told = str(error)
            assert len(told) < 1000, f"{key}: {told}"
            assert all(line.isprintable() for line in told.splitlines()), f"{key}: {told!r}"
            assert error.where, f"{key}: {told}"
        except Exception as error:
            pytest.fail(f"{key}={content.get(key)!r:.80}: {type(error).__name__}: {error}")
    (folder / file).write_text(before)
    load_model(folder, say=False)
    return count


@pytest.mark.parametrize("config", [VIT, SWIN], ids=["vit", "swin"])
def test_every_setting_of_a_timm_folder(config: ModelConfig, tmp_path: Path) -> None:
    folder = written(tmp_path / "model", config, "timm")
    whole = json.loads((folder / "config.json").read_text())
    counts = refused_or_loaded(folder, "config.json", damaged(whole))
    parts = {"pretrained_cfg": whole["pretrained_cfg"], "model_args": {**TIMM_ARGUMENTS, **whole["model_args"]}}
    if config is SWIN:
        parts["model_args"] = whole["model_args"]
    for part, content in parts.items():
        cases = ((f"{part}.{key}", {**whole, part: changed}) for key, changed in damaged(content))
        counts += refused_or_loaded(folder, "config.json", cases)
    assert counts["refused"] > 100


@pytest.mark.parametrize("config", [VIT, DINO, MAE], ids=["vit", "dinov2", "mae"])
def test_every_setting_of_a_hugging_face_folder(config: ModelConfig, tmp_path: Path) -> None:
    folder = written(tmp_path / "model", config, "huggingface")
    for file, more in (("config.json", HUGGING_FACE_KEYS), ("preprocessor_config.json", PICTURE_KEYS)):
        content = json.loads((folder / file).read_text())
        counts = refused_or_loaded(folder, file, damaged(content, *more))
        assert counts["refused"] > 50
