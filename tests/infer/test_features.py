"""Features: each is what the model computes there, says what it is by its name, and comes in order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from vitscope.core.errors import UsageError
from vitscope.infer.features.layouts import TOKENS
from vitscope.infer.predictor import Predictor
from vitscope.models.build import build_model
from vitscope.models.config import (
    CNNConfig,
    LSTMConfig,
    MAEConfig,
    ResNetConfig,
    SimMIMConfig,
    SwinConfig,
    ViTConfig,
)
from vitscope.models.model import VisionModel

VIT: dict[str, Any] = {"img_size": (16, 24), "patch_size": 8, "embed_dim": 16, "depth": 3, "num_heads": 2}
CONFIGS = {
    "vit": ViTConfig(**VIT, num_classes=3),
    "registers": ViTConfig(**VIT, num_classes=3, num_registers=2),
    "mean": ViTConfig(**VIT, num_classes=3, class_token=False, pool="mean"),
    "attention": ViTConfig(**VIT, num_classes=3, class_token=False, pool="attention"),
    "distilled": ViTConfig(**VIT, num_classes=3, distilled=True),
    "headless": ViTConfig(**VIT, num_classes=0),
    "swin": SwinConfig(img_size=32, embed_dim=16, depths=(1, 1), num_heads=(2, 2), window_size=4, num_classes=3),
    "cnn": CNNConfig(img_size=16, widths=(4, 8), num_classes=3),
    "resnet": ResNetConfig(img_size=16, depths=(1, 1), stem="cifar", stem_width=8, num_classes=3),
    "lstm": LSTMConfig(img_size=8, embed_dim=8, depth=2, bidirectional=True, num_classes=3),
    "mae": MAEConfig(
        encoder=ViTConfig(**VIT, num_classes=0), decoder_embed_dim=16, decoder_depth=1, decoder_num_heads=2
    ),
    "simmim": SimMIMConfig(encoder=ViTConfig(**VIT, num_classes=0)),
}
VITS = ("vit", "registers", "mean", "attention", "distilled", "headless", "mae", "simmim")


def loud(name: str) -> VisionModel:
    torch.manual_seed(0)
    model = build_model(CONFIGS[name])
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return model.eval()


def predictor_of(name: str) -> Predictor:
    return Predictor(loud(name), device="cpu", batch_size=2)


def images_for(predictor: Predictor, count: int = 3) -> torch.Tensor:
    seen = predictor.preprocessing
    generator = torch.Generator().manual_seed(1)
    return torch.randn(count, seen.in_chans, *seen.img_size, generator=generator)


@pytest.mark.parametrize("name", CONFIGS)
def test_pooled_is_what_the_head_reads(name: str) -> None:
    predictor = predictor_of(name)
    images = images_for(predictor)
    with torch.inference_mode():
        model = predictor.model
        wanted = model.forward_head(model.forward_features(images), pre_logits=True)
    torch.testing.assert_close(predictor.features(images).only, wanted, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("norm", [True, False])
@pytest.mark.parametrize("name", VITS)
def test_tokens_of_a_vit_are_its_own(name: str, norm: bool) -> None:
    predictor = predictor_of(name)
    images = images_for(predictor)
    vit: Any = getattr(predictor.model, "encoder", predictor.model)
    prefix = vit.config.num_prefix_tokens
    with torch.inference_mode():
        wanted = vit.forward_intermediates(images, norm=norm)
        assert torch.equal(vit.norm(wanted[2]) if not norm else wanted[2], vit.forward_features(images))
    side = "after" if norm else "before"
    forms: dict[Any, Any] = {
        "all": lambda tokens: tokens,
        "patch": lambda tokens: tokens[:, prefix:],
        "mean": lambda tokens: tokens[:, prefix:].mean(1),
        "map": lambda tokens: tokens[:, prefix:].transpose(1, 2).reshape(len(tokens), 16, 2, 3),
        **({"cls": lambda tokens: tokens[:, 0]} if vit.config.class_token else {}),
    }
    for tokens, form in forms.items():
        found = predictor.features(images, layers=None, tokens=tokens, norm=norm)
        assert list(found.values) == [f"layer{layer}_{tokens}_{side}_norm" for layer in range(3)]
        for layer in range(3):
            torch.testing.assert_close(found[f"layer{layer}_{tokens}_{side}_norm"], form(wanted[layer]))


@pytest.mark.parametrize("name", ["cnn", "resnet", "swin"])
def test_stages_give_their_maps(name: str) -> None:
    predictor = predictor_of(name)
    images = images_for(predictor)
    model: Any = predictor.model
    with torch.inference_mode():
        wanted = {layer: maps.clone() for layer, maps in model.forward_intermediates(images).items()}
        if name == "swin":
            wanted = {0: wanted[0].permute(0, 3, 1, 2), 1: model.norm(wanted[1]).permute(0, 3, 1, 2)}
    ends = ["_before_norm", "_after_norm"] if name == "swin" else ["", ""]
    maps = predictor.features(images, layers=None, tokens="map")
    assert list(maps.values) == [f"stage{layer}_map{end}" for layer, end in enumerate(ends)]
    patches = predictor.features(images, layers=None, tokens="patch")
    means = predictor.features(images, layers=None, tokens="mean")
    for layer, end in enumerate(ends):
        torch.testing.assert_close(maps[f"stage{layer}_map{end}"], wanted[layer])
        rows = wanted[layer].flatten(2).transpose(1, 2)
        torch.testing.assert_close(patches[f"stage{layer}_patch{end}"], rows)
        torch.testing.assert_close(means[f"stage{layer}_mean{end}"], rows.mean(1))


def test_swin_before_its_norm_is_before_it_everywhere() -> None:
    predictor = predictor_of("swin")
    images = images_for(predictor)
    found = predictor.features(images, layers=None, tokens="map", norm=False)
    assert list(found.values) == ["stage0_map_before_norm", "stage1_map_before_norm"]
    with torch.inference_mode():
        wanted = predictor.model.forward_intermediates(images)
    torch.testing.assert_close(found["stage1_map_before_norm"], wanted[1].permute(0, 3, 1, 2))


def test_the_lstm_gives_its_states() -> None:
    predictor = predictor_of("lstm")
    images = images_for(predictor)
    found = predictor.features(images, tokens="all", layers=1)
    with torch.inference_mode():
        torch.testing.assert_close(found["layer1_all"], predictor.model.forward_features(images))


@pytest.mark.parametrize(
    ("name", "refused"), [("mean", ["cls"]), ("swin", ["cls"]), ("cnn", ["cls"]), ("lstm", ["cls", "mean", "map"])]
)
def test_what_a_model_does_not_have_is_refused_with_what_it_has(name: str, refused: list[Any]) -> None:
    predictor = predictor_of(name)
    for tokens in refused:
        with pytest.raises(UsageError, match="tokens: expected one of pooled") as caught:
            predictor.features(images_for(predictor), tokens=tokens)
        assert tokens not in caught.value.what.partition(", received")[0].partition(" for ")[0].split(" ")
    assert set(refused) < set(TOKENS)


@pytest.mark.parametrize("layers", [3, -4, [0, 5], []])
def test_layers_there_are_not_are_refused(layers: Any) -> None:
    predictor = predictor_of("vit")
    with pytest.raises(UsageError, match="layers") as caught:
        predictor.features(images_for(predictor), layers=layers)
    assert caught.value.fix == "leave it out for the last one"


def test_layers_come_once_each_in_the_order_asked_for() -> None:
    predictor = predictor_of("vit")
    found = predictor.features(images_for(predictor), layers=[-1, 0, 2], tokens="cls")
    assert list(found.values) == ["layer2_cls_after_norm", "layer0_cls_after_norm"]
    with pytest.raises(UsageError, match="a single one"):
        found.only  # noqa: B018
    with pytest.raises(UsageError, match="layer2_cls_after_norm"):
        found["layer1_cls_after_norm"]


def test_metadata_say_what_was_taken_and_how() -> None:
    predictor = predictor_of("registers")
    about = predictor.features(images_for(predictor), layers=[1], tokens="map", norm=False).about
    assert about["features"] == {
        "layer1_map_before_norm": {
            "layer": 1,
            "of": 3,
            "unit": "layer",
            "tokens": "map",
            "norm": "before",
            "shape": [16, 2, 3],
            "axes": "(B, D, h, w)",
        }
    }
    assert about["model"]["family"] == "ViT"
    assert about["model"]["config"]["num_registers"] == 2
    assert about["img_size"] == [16, 24]
    assert about["preprocessing"]["mean"] == [0.5, 0.5, 0.5]
    assert (about["dtype"], about["arithmetic"], about["count"], about["bad"]) == ("float32", "float32", 3, [])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(7):
        place = tmp_path / "photos" / ("odd" if number % 2 else "even")
        place.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(number).integers(0, 256, (20, 30, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(place / f"{number}.png")
    return tmp_path / "photos"


def test_a_folder_is_in_order_with_its_classes_and_bad_pictures_are_listed(folder: Path) -> None:
    (folder / "even" / "3.png").write_bytes(b"no picture")
    (folder / "odd" / "0.jpg").touch()
    predictor = predictor_of("vit")
    found = predictor.features(folder)
    paths = sorted(folder.rglob("*.png"))
    good = [path for path in paths if path != folder / "even" / "3.png"]
    assert found.paths == [str(path) for path in good]
    assert found.classes == ("even", "odd")
    assert found.labels is not None
    assert found.labels.tolist() == [int(path.parent.name == "odd") for path in good]
    assert [(one.place, one.path) for one in found.bad] == [
        (2, str(folder / "even" / "3.png")),
        (5, str(folder / "odd" / "0.jpg")),
    ]
    assert found.places == [0, 1, 3, 4, 6, 7, 8]
    assert found.bad[1].reason == "an empty file (0 bytes)"
    one_by_one = torch.cat([predictor.features(path).only for path in good])
    torch.testing.assert_close(found.only, one_by_one)
    assert predictor.features(good[0]).labels is None


def test_parts_are_parts_and_stray_pictures_mean_there_are_no_classes(folder: Path) -> None:
    predictor = predictor_of("vit")
    for part in ("train", "val"):
        for group in ("even", "odd"):
            target = folder.parent / "copied" / part / group
            target.mkdir(parents=True)
            for path in (folder / group).iterdir():
                (target / path.name).write_bytes(path.read_bytes())
    found = predictor.features(folder.parent / "copied")
    assert found.classes == ("even", "odd")
    assert found.parts == ["train"] * 7 + ["val"] * 7
    (folder / "stray.png").write_bytes((folder / "even" / "0.png").read_bytes())
    assert predictor.features(folder).labels is None


def test_a_data_set_by_name_brings_its_classes() -> None:
    predictor = predictor_of("vit")
    found = predictor.features("shapes:size=16,count=100")
    assert len(found) == 100
    assert found.labels is not None
    assert found.classes
    assert found.labels.max() < len(found.classes)


def test_no_picture_is_no_features() -> None:
    found = predictor_of("vit").features([])
    assert found.only.shape == (0, 16)


def test_numbers_too_large_for_fp16_are_told() -> None:
    predictor = predictor_of("vit")
    with torch.no_grad():
        predictor.model.get_parameter("norm.bias")[0] = 1e5
    images = images_for(predictor, 2)
    found = predictor.features(images, dtype=torch.float16)
    assert [one.place for one in found.bad] == [0, 1]
    assert "keep bf16 or fp32" in found.bad[0].reason
    kept = predictor.features(images, dtype=torch.bfloat16)
    assert kept.only.dtype == torch.bfloat16
    torch.testing.assert_close(kept.only, predictor.features(images).only.bfloat16())
    with torch.no_grad():
        predictor.model.get_parameter("norm.bias")[0] = float("nan")
    assert predictor.features(images).bad[0].reason == "the model's answer is not a number"
    with pytest.raises(UsageError, match="dtype"):
        predictor.features(images, dtype=torch.float64)
