"""timm's hub layout: what timm writes we open, what we write timm opens, with the same answers to the same pictures."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from PIL import Image
from timm.data.config import resolve_data_config
from timm.data.transforms_factory import create_transform
from timm.models._hub import save_for_hf
from torch import Tensor

from parity.random_weights import fill_with_large_random_weights
from vitscope.core.config import updated
from vitscope.core.environment import data_roots
from vitscope.core.errors import ConfigError, VitscopeError
from vitscope.data.config import PreprocessConfig, half_normalised
from vitscope.data.preprocess import preprocess
from vitscope.models.build import build_model
from vitscope.models.config import CNNConfig, MAEConfig, ResNetConfig, SimMIMConfig, SwinConfig, ViTConfig, pair
from vitscope.models.variants import model_config
from vitscope.weights.formats.timm_folder import described_by, peer, save_file, save_folder
from vitscope.weights.load import load_model

SMALL: dict[str, Any] = {"img_size": 32, "patch_size": 8, "embed_dim": 48, "depth": 2, "num_heads": 4, "num_classes": 7}
NARROW: dict[str, Any] = {"embed_dim": 48, "depth": 2, "num_heads": 4}
PLAIN = ViTConfig(**SMALL)
ENCODER = updated(PLAIN, num_classes=0)
SWIN = SwinConfig(img_size=64, window_size=2, embed_dim=24, depths=(2, 2), num_heads=(2, 4), num_classes=3)

HELD: dict[str, Any] = {
    "plain": PLAIN,
    "headless": updated(PLAIN, num_classes=0),
    "grey": updated(PLAIN, in_chans=1),
    "five_channels": updated(PLAIN, in_chans=5),
    "not_square": updated(PLAIN, img_size=(24, 40), patch_size=(4, 8)),
    "mean": updated(PLAIN, pool="mean", class_token=False),
    "attention_pool": updated(PLAIN, pool="attention", mlp_ratio=2.0),
    "registers": updated(PLAIN, num_registers=3),
    "registers_apart": updated(PLAIN, num_registers=3, prefix_position=False, layer_scale=0.1),
    "layer_scale_from_0": updated(PLAIN, layer_scale=0.0),
    "no_position": updated(PLAIN, position="none"),
    "qk_norm": updated(PLAIN, qk_norm=True, qkv_bias=False),
    "gelu_tanh": updated(PLAIN, act="gelu_tanh"),
    "odd_mlp": updated(PLAIN, mlp_dim=101),
    "swiglu": updated(PLAIN, mlp="swiglu", mlp_dim=101, act="gelu"),
    "swiglu_registers": updated(PLAIN, mlp="swiglu", mlp_dim=64, num_registers=2, layer_scale=1.0),
    "eps": updated(PLAIN, norm_eps=1e-5),
    "distilled": updated(PLAIN, distilled=True),
    "dropout": updated(PLAIN, drop_rate=0.1, attn_drop_rate=0.2, drop_path_rate=0.3, head_drop_rate=0.4),
    "swin": SWIN,
    "swin_options": updated(SWIN, qkv_bias=False, mlp_ratio=2.5, drop_path_rate=0.0, img_size=(32, 64)),
    "resnet": ResNetConfig(img_size=64, depths=(1, 2, 1, 1), num_classes=5),
    "resnet_bottleneck": ResNetConfig(img_size=64, block="bottleneck", depths=(1, 1, 1, 1), num_classes=5, in_chans=1),
}


def made(config: Any) -> Any:
    model = build_model(config)
    fill_with_large_random_weights(model)
    return model.eval()


def pictures(config: Any) -> Tensor:
    return torch.randn(2, config.in_chans, *pair(config.img_size), generator=torch.Generator().manual_seed(1))


def answers(model: Any, images: Tensor) -> Tensor:
    with torch.no_grad():
        return model(images) if model.num_classes else model.forward_features(images)


def assert_close(found: Tensor, wanted: Tensor) -> None:
    assert found.shape == wanted.shape
    assert (found - wanted).abs().max().item() <= 1e-5 * max(1.0, wanted.abs().max().item())


# --- ours to timm and back --------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", HELD)
def test_ours_to_timm_and_back(case: str, tmp_path: Path) -> None:
    config = HELD[case]
    ours = made(config)
    images, wanted = pictures(config), answers(ours, pictures(config))
    save_folder(ours, tmp_path)
    described = json.loads((tmp_path / "config.json").read_text())
    by_folder = timm.create_model(f"local-dir:{tmp_path}", pretrained=True)
    by_file = timm.create_model(
        described["architecture"],
        checkpoint_path=tmp_path / "model.safetensors",
        **described.get("model_args", {}),
    )
    for opened in (by_folder, by_file):
        assert_close(answers(opened.eval(), images), wanted)
    asked = peer(tmp_path)
    assert asked is not None
    assert_close(asked(images), wanted)

    back = load_model(tmp_path)
    assert back.certificate.format == "timm"
    assert back.certificate.is_whole
    for name, tensor in ours.state_dict().items():
        assert torch.equal(back.state_dict()[name], tensor), name
    assert torch.equal(answers(back, images), wanted)
    for key in ("drop_rate", "attn_drop_rate", "drop_path_rate", "head_drop_rate", "norm_eps"):
        assert getattr(back.config, key, None) == getattr(config, key, None)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (MAEConfig(encoder=updated(ENCODER, position="sincos"), decoder_embed_dim=32, decoder_num_heads=2), "sin-cos"),
        (SimMIMConfig(encoder=ENCODER), "the encoder alone"),
    ],
    ids=["mae", "simmim"],
)
def test_of_a_masked_model_the_encoder_is_written(config: Any, words: str, tmp_path: Path) -> None:
    ours = made(config)
    assert words in " ".join(save_folder(ours, tmp_path))
    images = pictures(ENCODER)
    wanted = answers(ours.encoder, images)
    opened = timm.create_model(f"local-dir:{tmp_path}", pretrained=True).eval()
    assert_close(answers(opened, images), wanted)
    assert_close(answers(load_model(tmp_path), images), wanted)


def test_a_swin_without_a_head_is_opened_by_its_file(tmp_path: Path) -> None:
    config = updated(SWIN, num_classes=0)
    ours = made(config)
    assert "checkpoint_path" in " ".join(save_folder(ours, tmp_path))
    asked = peer(tmp_path)
    assert asked is not None
    assert_close(asked(pictures(config)), answers(ours, pictures(config)))


@pytest.mark.parametrize("config", [PLAIN, updated(PLAIN, distilled=True), SWIN], ids=["plain", "distilled", "swin"])
def test_an_eps_timm_has_no_name_for_is_said_with_its_size(config: Any, tmp_path: Path) -> None:
    """And the size said is the size timm shows."""
    ours = made(updated(config, norm_eps=1e-3))
    (said,) = [line for line in save_folder(ours, tmp_path) if "eps" in line]
    measured = float(said.partition("differ by up to ")[2].split()[0])
    asked = peer(tmp_path)
    assert asked is not None
    images = torch.randn(2, 3, *pair(config.img_size), generator=torch.Generator().manual_seed(0))
    shown = (asked(images) - answers(ours, images)).abs().max().item()
    assert shown == pytest.approx(measured, rel=0.2)
    assert shown > 1e-4


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (updated(PLAIN, norm_order="post", position="rope"), ["norm_order='post'", "position='rope'"]),
        (updated(PLAIN, position="relative"), ["position='relative'"]),
        (updated(PLAIN, num_heads=(4, 2), head_dim=12, mlp_dim=(20, 30)), ["num_heads", "mlp_dim"]),
        (updated(PLAIN, head_dim=16), ["head_dim=16"]),
        (updated(PLAIN, distilled=True, num_registers=1, prefix_position=False), ["registers", "without a position"]),
        (updated(PLAIN, pool="attention", mlp_dim=20), ["pooling"]),
        (updated(PLAIN, pool="attention", mlp="swiglu"), ["activation"]),
        (model_config("resnet20"), ["stem='cifar'", "stem_width=16", "3 stages"]),
        (CNNConfig(), ["cnn"]),
    ],
    ids=str,
)
def test_what_timm_cannot_hold_is_listed(config: Any, words: list[str], tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        save_folder(build_model(config), tmp_path / "out")
    assert all(word in caught.value.what for word in words)
    assert not (tmp_path / "out").exists()


def test_preprocessing_and_labels_travel(tmp_path: Path) -> None:
    ours = made(PLAIN)
    ours.labels = [f"class {index}" for index in range(7)]
    ours.preprocessing = PreprocessConfig(
        img_size=(32, 32), crop_share=0.9, interpolation="bilinear", mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6)
    )
    assert save_folder(ours, tmp_path) == []
    back = load_model(tmp_path)
    assert back.labels == ours.labels
    assert back.preprocessing == ours.preprocessing
    opened: Any = timm.create_model(f"local-dir:{tmp_path}", pretrained=True)
    assert list(opened.pretrained_cfg["label_names"]) == ours.labels


# --- what timm writes -------------------------------------------------------------------------------------------

HUB: dict[str, dict[str, Any]] = {
    "vit_base_patch16_224": NARROW,
    "vit_small_patch32_384": {**NARROW, "num_classes": 12},
    "vit_small_patch14_reg4_dinov2": {**NARROW, "img_size": 98},
    "vit_base_patch14_dinov2": {**NARROW, "img_size": 98, "global_pool": "avg", "fc_norm": False},
    "vit_giant_patch14_dinov2": {**NARROW, "img_size": 98, "act_layer": "gelu"},
    "vit_base_patch16_clip_224": {**NARROW, "pre_norm": False, "num_classes": 3},
    "deit_tiny_distilled_patch16_224": {**NARROW, "num_classes": 3},
    "swin_tiny_patch4_window7_224": {"embed_dim": 24, "depths": [2, 2, 2, 2], "num_heads": [2, 2, 4, 4]},
    "resnet18": {"layers": [1, 1, 1, 1], "num_classes": 4},
}


@pytest.mark.parametrize("binary", [False, True], ids=["bin", "safetensors"])
@pytest.mark.parametrize("name", HUB)
def test_a_hub_folder_of_timms(name: str, binary: bool, tmp_path: Path) -> None:
    theirs = timm.create_model(name, **HUB[name])
    fill_with_large_random_weights(theirs)
    save_for_hf(theirs.eval(), tmp_path, model_args=HUB[name], safe_serialization=binary)  # type: ignore[arg-type]
    ours = load_model(tmp_path)
    images = pictures(ours.config)
    assert_close(answers(ours, images), answers(theirs, images))
    assert ours.certificate.is_whole
    assert ours.certificate.covered == 1
    assert ours.preprocessing.img_size == pair(ours.config.img_size)
    asked = peer(tmp_path)
    assert asked is not None
    assert torch.equal(asked(images), answers(theirs, images))


def photographs(count: int = 3) -> list[Image.Image]:
    folder = next((root / "imagenette160" for root in data_roots() if (root / "imagenette160").is_dir()), None)
    if folder is None:
        pytest.skip("no imagenette160 under $VITSCOPE_DATA or data/")
    import pyarrow.parquet as pq

    (file,) = sorted(folder.glob("validation-*.parquet"))
    rows = next(pq.ParquetFile(file).iter_batches(batch_size=count, columns=["image"])).to_pylist()
    return [Image.open(io.BytesIO(row["image"]["bytes"])).convert("RGB") for row in rows]


# timm resizes to sizes that are not square by this filter, whatever was asked for.
NOT_SQUARE = {"input_size": (3, 96, 160), "crop_pct": 0.8, "interpolation": "bilinear"}


@pytest.mark.parametrize(
    ("name", "arguments", "overlay"),
    [
        ("vit_base_patch16_224", NARROW, {}),
        ("vit_base_patch16_384", NARROW, {"crop_pct": 0.95, "interpolation": "bilinear"}),
        ("deit_tiny_distilled_patch16_224", NARROW, {}),
        ("vit_small_patch14_reg4_dinov2", {**NARROW, "img_size": 98}, {"input_size": (3, 98, 98)}),
        ("vit_small_patch16_224", NARROW, {"crop_mode": "squash", "crop_pct": 0.9}),
        ("resnet18", {"layers": [1, 1, 1, 1]}, NOT_SQUARE),
        ("swin_tiny_patch4_window7_224", {"embed_dim": 24, "depths": [2, 2, 2, 2], "num_heads": [2, 2, 4, 4]}, {}),
    ],
    ids=["vit", "vit_384", "deit", "dinov2", "squash", "not_square", "swin"],
)
def test_photographs_get_timms_answers(name: str, arguments: Any, overlay: Any, tmp_path: Path) -> None:
    """Through each side's own preprocessing and network."""
    shown = photographs()
    theirs = timm.create_model(name, pretrained_cfg_overlay=overlay, **arguments)
    fill_with_large_random_weights(theirs)
    save_for_hf(theirs.eval(), tmp_path, model_args=arguments, safe_serialization=True)  # type: ignore[arg-type]
    ours = load_model(tmp_path)
    transform: Any = create_transform(**resolve_data_config({}, model=theirs), is_training=False)
    their_images = torch.stack([transform(photograph) for photograph in shown])
    our_images = torch.stack([preprocess(photograph, ours.preprocessing) for photograph in shown])
    wanted = answers(theirs, their_images)
    assert wanted.std(dim=0).max() > 0.1, "the photographs all get the same answer"
    assert_close(answers(ours, our_images), wanted)
    save_folder(ours, tmp_path / "again")
    assert load_model(tmp_path / "again").preprocessing == ours.preprocessing


# --- config.json ------------------------------------------------------------------------------------------------


def describe(**changes: Any) -> dict[str, Any]:
    pretrained = {
        "input_size": [3, 224, 224],
        "fixed_input_size": True,
        "interpolation": "bicubic",
        "crop_pct": 0.9,
        "crop_mode": "center",
        "mean": [0.5, 0.5, 0.5],
        "std": [0.5, 0.5, 0.5],
    }
    inner = {key: changes.pop(key) for key in list(changes) if key in pretrained}
    described = {"architecture": "vit_base_patch16_224", "num_classes": 1000, "num_features": 768}
    return {**described, **changes, "pretrained_cfg": {**pretrained, **inner}}


def test_the_first_way_of_writing_it() -> None:
    described = {**describe()["pretrained_cfg"], "architecture": "vit_base_patch16_224", "num_classes": 2}
    config, preprocessing, labels = described_by({**described, "labels": ["cat", "dog"]}, Path("x"))
    assert config == updated(model_config("vit_base_patch16_224"), num_classes=2)
    assert preprocessing == PreprocessConfig(crop_share=0.9)
    assert labels == ["cat", "dog"]


@pytest.mark.parametrize(("fixed", "side"), [(True, 384), (False, 224)])
def test_a_fixed_input_size_is_the_models(fixed: bool, side: int) -> None:
    """Else it is the size of the pictures the weights were tested with, and the model keeps its own, as in timm."""
    config, preprocessing, _ = described_by(describe(input_size=[3, 384, 384], fixed_input_size=fixed), Path("x"))
    assert config.img_size == side
    assert preprocessing is not None
    assert preprocessing.img_size == (side, side)


def test_labels_by_number() -> None:
    _, _, labels = described_by(describe(num_classes=3, label_names={"0": "cat", "2": "dog"}), Path("x"))
    assert labels == ["cat", "1", "dog"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"architecture": "vit_base_patch16_clip_224"}, ["pre_norm", "True"]),
        ({"architecture": "vit_so150m_patch16_reg4_map_256"}, ["vit_so150m_patch16_reg4_map_256", "vit_"]),
        ({"architecture": "vit_smal_patch16_224"}, ["vit_small_patch16_224"]),
        ({"model_args": {"global_pool": "avg"}}, ["fc_norm", "True"]),
        ({"model_args": {"global_pool": "max"}}, ["global_pool", "'max'"]),
        ({"model_args": {"mlp_layer": "glu", "scale_thing": 2}}, ["mlp_layer", "scale_thing=2"]),
        ({"model_args": {"act_layer": "mish"}}, ["act_layer", "'mish'"]),
        ({"model_args": {"proj_drop_rate": 0.1}}, ["proj_drop_rate"]),
        ({"model_args": ["depth"]}, ["model_args"]),
        ({"crop_mode": "border"}, ["crop_mode", "'border'"]),
        ({"interpolation": "lanczos"}, ["interpolation", "'lanczos'"]),
        ({"input_size": [224, 224]}, ["input_size"]),
    ],
    ids=str,
)
def test_what_we_cannot_hold_is_refused(changes: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        described_by(describe(**changes), Path("folder"))
    said = f"{caught.value.what} {caught.value.fix}"
    assert all(word in said for word in words)
    assert str(caught.value.where).startswith("folder/config.json")


def test_a_folder_without_weights(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(describe()))
    with pytest.raises(VitscopeError, match="no weights"):
        load_model(tmp_path)
    assert peer(tmp_path) is None


@pytest.fixture
def without_timm() -> Iterator[None]:
    hidden = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "timm"}
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment]
    yield
    sys.modules.update(hidden)


@pytest.mark.usefixtures("without_timm")
def test_timm_is_not_needed(tmp_path: Path) -> None:
    ours = made(updated(PLAIN, norm_eps=1e-3))
    save_folder(ours, tmp_path)
    assert torch.equal(load_model(tmp_path).state_dict()["norm.weight"], ours.state_dict()["norm.weight"])
    assert peer(tmp_path) is None


@pytest.mark.parametrize("resizer", ["tensor", "pillow"])
def test_a_resizer_timm_does_not_have_is_said(resizer: Any, tmp_path: Path) -> None:
    model = build_model(ViTConfig(img_size=16, patch_size=8, embed_dim=16, depth=1, num_heads=2, num_classes=3))
    model.preprocessing = updated(half_normalised((16, 16), 3), resizer=resizer)
    assert any("resized as tensors here" in said for said in save_folder(model, tmp_path)) == (resizer == "tensor")


@pytest.mark.parametrize("name", ["weights.safetensors", "weights.pth"])
def test_a_bare_file_may_be_read_by_whom_the_umask_says(name: str, tmp_path: Path) -> None:
    save_file(build_model(ViTConfig(img_size=16, patch_size=8, embed_dim=16, depth=1, num_heads=2)), tmp_path / name)
    (tmp_path / "other").touch()
    assert (tmp_path / name).stat().st_mode == (tmp_path / "other").stat().st_mode
