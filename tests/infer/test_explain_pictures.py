"""The pictures: at their size, filled, and following the numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from infer.looking_models import photograph, predictor
from vitscope.infer.explain.colours import coloured, laid_over, levels
from vitscope.infer.explain.explain import explain
from vitscope.infer.explain.feature_maps import feature_maps_of
from vitscope.infer.explain.frame import Frame
from vitscope.infer.explain.token_map import _pixels
from vitscope.infer.predictor import Predictor
from vitscope.models.build import build_model
from vitscope.models.config import CNNConfig, ResNetConfig, SwinConfig


def drawn(path: Path) -> np.ndarray:
    with Image.open(path) as image:
        assert image.format == "PNG"
        return np.asarray(image.convert("RGB")).astype(int)


def inked(pixels: np.ndarray) -> float:
    return float((pixels.min(axis=2) < 245).mean())


KINDS: dict[str, tuple[dict[str, Any], tuple[int, int], dict[str, Any]]] = {
    "class token": ({}, (60, 90), {}),
    "a patch": ({"num_registers": 2}, (90, 60), {"patch": (1, 2)}),
    "tiny picture": ({"class_token": False, "pool": "mean"}, (8, 8), {"method": "rollout"}),
    "large picture": ({"pool": "attention"}, (900, 1300), {"method": "gradient_rollout"}),
    "strip": ({}, (3, 700), {}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_panel_and_sheet(kind: str, tmp_path: Path) -> None:
    settings, size, how = KINDS[kind]
    found = explain(predictor(**settings), photograph(*size), **how)
    assert found.overlay().size == (size[1], size[0])
    assert found.heat().shape == size
    panel = drawn(found.save(tmp_path / "new" / "panel.png"))
    sheet = drawn(found.save_sheet(tmp_path / "new" / "sheet.png"))
    assert panel.shape[1] > 3 * 300
    if kind != "strip":
        assert inked(panel) > 0.35
        assert inked(sheet) > 0.2
    alone = drawn(explain(predictor(**settings), photograph(*size), **how, draws=None).save(tmp_path / "alone.png"))
    assert alone.shape[1] < panel.shape[1]  # no curves, and no room for them


def test_the_panel_holds_the_picture_pixel_for_pixel(tmp_path: Path) -> None:
    picture = photograph(320, 400)
    pixels = drawn(explain(predictor(), picture, draws=None).save(tmp_path / "a.png"))
    own = np.asarray(picture)[100:200, 150:250].astype(int)  # inside the white frame
    places = [
        (top, left)
        for top in range(pixels.shape[0] - 320)
        for left in (24,)
        if np.array_equal(pixels[top + 100 : top + 200, left + 150 : left + 250], own)
    ]
    assert len(places) == 1


def test_the_same_map_gives_the_same_bytes(tmp_path: Path) -> None:
    found = explain(predictor(), photograph())
    for draw in (found.save, found.save_sheet):
        one, other = draw(tmp_path / "1.png").read_bytes(), draw(tmp_path / "2.png").read_bytes()
        assert one == other


def test_the_overlay_is_bright_where_the_map_is_high() -> None:
    grey = Image.new("RGB", (80, 40), (100, 100, 100))
    values = np.array([[0.0, 0.0], [0.0, 4.0]])
    pixels = np.asarray(laid_over(grey, Frame((40, 80), (20, 0, 60, 40)), values)).astype(int)
    assert np.ptp(pixels[35, 55]) > 60
    assert np.ptp(pixels[5, 25]) < 20
    assert (pixels[:, :19] == 30).all()  # not seen: grey and dimmed
    assert pixels[35, 55].sum() > pixels[5, 25].sum()


def test_a_flat_map_stays_dull() -> None:
    flat = np.ones((4, 4)) + np.linspace(0, 0.01, 16).reshape(4, 4)
    assert levels(flat).max() < 0.1
    assert levels(np.arange(4.0)[None]).tolist() == [[0, 1 / 3, 2 / 3, 1]]
    assert (coloured(np.array([[np.nan]])) == 232).all()


@pytest.mark.parametrize("settings", [{}, {"num_heads": 1}, {"class_token": False, "pool": "mean"}])
def test_token_maps(settings: dict[str, Any], tmp_path: Path) -> None:
    found = predictor(**settings).attention(photograph())
    every = drawn(found.save(tmp_path / "all.png", layer=0))
    one = drawn(found.save(tmp_path / "one.png", layer=0, head=0))
    other = drawn(found.save(tmp_path / "other.png", layer=2, head=0))
    assert inked(every) > 0.5
    assert inked(one) > 0.5
    assert one.shape == other.shape
    assert np.abs(one - other).max() > 50


def test_a_line_of_the_token_map_is_one_that_looks(tmp_path: Path) -> None:
    """All look at token 2: a bright column, not a bright line."""
    found = predictor(class_token=False, pool="mean").attention(photograph(), layers=[0])
    weights = found.layers[0]
    weights.fill_(0.01)
    weights[:, :, 2] = 1
    pixels = drawn(found.save(tmp_path / "a.png", layer=0, head=0))
    yellow = (pixels[..., 0] > 200) & (pixels[..., 1] > 200) & (pixels[..., 2] < 100)
    rows, columns = np.nonzero(yellow[: int(pixels.shape[0] * 0.85)])
    assert np.ptp(rows) > 500
    assert np.ptp(columns) < 60


def test_more_tokens_than_pixels_are_averaged() -> None:
    values = np.full((10, 10), 1.0)
    values[:5] = 100.0
    pixels = _pixels(values, (0.1, 100.0), 4)
    assert pixels.shape == (4, 4, 3)
    assert (pixels[0] == pixels[0, 0]).all()
    assert (pixels[:2] == pixels[0, 0]).all()  # tokens 0, 1 and 2, 3, 4
    assert (pixels[2:] == pixels[3, 3]).all()
    assert (pixels[0, 0] != pixels[3, 3]).any()
    assert _pixels(values, (0.1, 100.0), 25).shape == (25, 25, 3)


NETWORKS = {
    "cnn": (CNNConfig(img_size=16, in_chans=1, widths=(4, 8), num_classes=3), (4, 1, 3, 3), [(4, 8, 8), (8, 4, 4)]),
    "resnet": (
        ResNetConfig(img_size=32, depths=(1, 1), stem="cifar", num_classes=3),
        (64, 3, 3, 3),
        [(64, 32, 32), (128, 16, 16)],
    ),
    "swin": (
        SwinConfig(img_size=32, embed_dim=16, depths=(1, 1), num_heads=(2, 2), window_size=4, num_classes=3),
        (16, 3, 4, 4),
        [(16, 8, 8), (32, 4, 4)],
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_filters_and_feature_maps(name: str, tmp_path: Path) -> None:
    config, filters, stages = NETWORKS[name]
    asked = Predictor(build_model(config), device="cpu")
    asked.model.train()
    found = feature_maps_of(asked, photograph(50, 70))
    assert all(part.training for part in asked.model.modules())
    assert found.filters.shape == filters
    assert [stage.maps.shape for stage in found.stages] == stages
    asked.model.eval()
    wanted = asked.model.forward_intermediates(_images(asked))
    for stage, maps in zip(found.stages, wanted.values(), strict=True):
        maps = maps.permute(0, 3, 1, 2) if name == "swin" else maps
        np.testing.assert_allclose(stage.maps, maps[0].detach().numpy(), atol=1e-5)
    assert inked(drawn(found.save(tmp_path / "a.png"))) > 0.15


def _images(asked: Predictor) -> Any:
    from infer.looking_models import seeing

    return seeing(asked, photograph(50, 70))


def test_of_a_vit_the_patch_embedding_and_blocks(tmp_path: Path) -> None:
    asked = predictor(num_registers=2)
    found = feature_maps_of(asked, photograph())
    assert found.layer == "patch_embed.proj"
    assert found.filters.shape == (32, 3, 8, 8)
    assert [stage.name for stage in found.stages] == ["patch embedding", "block 0", "block 1", "block 2"]
    assert all(stage.maps.shape == (32, 4, 4) for stage in found.stages)
    spread = found.stages[0].maps.reshape(32, -1).std(axis=1)
    assert found.stages[0].liveliest(32)[0] == spread.argmax()
    assert inked(drawn(found.save(tmp_path / "a.png"))) > 0.3
