"""Maps lie where they belong in the picture itself: a bright square is found at its own place, however a picture was
resized and cut for the model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from vitscope.data.config import PreprocessConfig
from vitscope.infer.explain.explain import explain
from vitscope.infer.explain.frame import Frame, frame_of, whole
from vitscope.infer.predictor import Predictor
from vitscope.models.build import build_model
from vitscope.models.config import ViTConfig


def drawn_to_light(img_size: tuple[int, int], preprocessing: PreprocessConfig, patch: int = 8) -> Predictor:
    """A model whose class token looks at bright patches and nowhere else."""
    config = ViTConfig(
        img_size=img_size, patch_size=patch, embed_dim=8, depth=1, num_heads=1, num_classes=2, position="none"
    )
    torch.manual_seed(0)
    model: Any = build_model(config)
    with torch.no_grad():
        model.patch_embed.proj.weight.zero_()
        model.patch_embed.proj.bias.zero_()
        model.patch_embed.proj.weight[0] = 1 / (3 * patch * patch)  # the first number of a token is its brightness
        model.patch_embed.proj.weight[1] = -1 / (3 * patch * patch)  # and the norm keeps the two apart from 0
        model.cls_token.zero_()
        model.cls_token[..., 2], model.cls_token[..., 3] = 1, -1
        attn = model.blocks[0].attn
        attn.qkv.weight.zero_()
        attn.qkv.bias.zero_()
        attn.qkv.weight[0, 2] = 20  # q of the class token
        attn.qkv.weight[8, 0] = 1  # k of a patch
    model.preprocessing = preprocessing
    return Predictor(model, device="cpu")


CASES: dict[str, tuple[dict[str, Any], tuple[int, int], tuple[int, int]]] = {
    "as it is": ({}, (64, 64), (64, 64)),
    "larger": ({}, (64, 64), (256, 256)),
    "wide, cut in the middle": ({}, (64, 64), (120, 200)),
    "tall, cut in the middle": ({}, (64, 64), (230, 110)),
    "crop_share": ({"crop_share": 0.875}, (64, 64), (160, 220)),
    "half is cut off": ({"crop_share": 0.5}, (64, 64), (200, 200)),
    "squashed": ({"crop": "squash"}, (64, 64), (100, 300)),
    "squashed with crop_share": ({"crop": "squash", "crop_share": 0.8}, (64, 64), (300, 120)),
    "non-square model": ({}, (48, 96), (150, 210)),
    "non-square model, tall picture": ({"crop_share": 0.9}, (48, 96), (300, 200)),
    "tensor resizer": ({"resizer": "tensor", "crop_share": 0.875}, (64, 64), (151, 203)),
    "enlarged": ({"crop_share": 0.875}, (64, 64), (30, 41)),
}


@pytest.mark.parametrize("case", CASES)
def test_a_bright_square_is_found_where_it_is(case: str) -> None:
    settings, img_size, (height, width) = CASES[case]
    preprocessing = PreprocessConfig(img_size=img_size, **settings)
    asked = drawn_to_light(img_size, preprocessing)
    seen = frame_of((height, width), preprocessing)
    left, top, right, bottom = seen.box
    for down, across in ((0.2, 0.25), (0.7, 0.8), (0.45, 0.15)):
        # A square about two patches wide, at a place counted within what the model sees.
        y, x = top + down * (bottom - top), left + across * (right - left)
        half_y, half_x = (bottom - top) * 8 / img_size[0], (right - left) * 8 / img_size[1]
        pixels = np.zeros((height, width, 3), np.uint8)
        rows = slice(max(0, round(y - half_y)), round(y + half_y))
        columns = slice(max(0, round(x - half_x)), round(x + half_x))
        pixels[rows, columns] = 255
        found = explain(asked, Image.fromarray(pixels), draws=None)
        heat = found.heat()
        assert heat.shape == (height, width)
        weights = np.nan_to_num(heat - np.nanmin(heat))
        square = np.zeros((height, width))
        square[rows, columns] = 1
        for axis, size in ((0, half_y), (1, half_x)):
            places = np.arange((height, width)[axis]) + 0.5
            middle = (weights.sum(axis=1 - axis) * places).sum() / weights.sum()
            true = (square.sum(axis=1 - axis) * places).sum() / square.sum()
            assert abs(middle - true) < 0.6 * size, (case, axis, middle, true)  # half a patch, and rounding
        inside = weights[rows, columns].mean()
        assert inside > 8 * (weights.sum() - weights[rows, columns].sum()) / (square == 0).sum()
        overlay = np.asarray(found.overlay()).astype(int)
        colour = overlay.max(axis=2) - overlay.min(axis=2)
        assert overlay.shape[:2] == (height, width)
        # What the model did not see has no colour, and the square has the most.
        assert (colour[np.isnan(heat)] == 0).all()
        assert colour[rows, columns].mean() > 3 * colour[square == 0].mean()


def test_the_box_is_what_the_preprocessing_cuts_out() -> None:
    """Pixel columns that are numbered show up in the prepared picture where the box says."""
    from vitscope.data.preprocess import to_pixels

    for case, (settings, img_size, (height, width)) in CASES.items():
        config = PreprocessConfig(img_size=img_size, interpolation="bilinear", **settings)
        across = np.tile(np.linspace(0, 255, width), (height, 1))
        down = np.tile(np.linspace(0, 255, height)[:, None], (1, width))
        ramp = Image.fromarray(np.stack([across, down, 0 * down], axis=2).round().astype(np.uint8))
        pixels = to_pixels(ramp, config).numpy().astype(float)
        left, top, right, bottom = frame_of((height, width), config).box
        for channel, axis, start, end, own in ((0, 1, left, right, width), (1, 0, top, bottom, height)):
            values = pixels[channel].mean(axis=1 - axis)
            seen = len(values)
            for place in (seen // 4, seen // 2, 3 * seen // 4):
                there = start + (place + 0.5) / seen * (end - start) - 0.5
                assert abs(values[place] - there * 255 / (own - 1)) < 2.5, (case, axis, place)


def test_spreading_keeps_values_and_leaves_the_rest_out() -> None:
    frame = Frame((40, 100), (30, 0, 70, 40))
    values = np.arange(16.0).reshape(4, 4)
    tiles = frame.spread(values, smooth=False)
    assert np.isnan(tiles[:, :30]).all()
    assert np.isnan(tiles[:, 70:]).all()
    assert np.array_equal(tiles[::10, 30:70:10], values)
    assert np.array_equal(tiles[9::10, 39:70:10], values)
    smooth = frame.spread(values)
    assert np.array_equal(np.isnan(smooth), np.isnan(tiles))
    assert smooth[5, 35] == pytest.approx(values[0, 0], abs=0.3)
    assert np.nanmax(smooth) <= 15
    assert (np.diff(smooth[20, 30:70]) >= 0).all()
    assert np.array_equal(whole((2, 2)).spread(np.array([[1.0, 2.0], [3.0, 4.0]])), [[1, 2], [3, 4]])
    assert frame.scaled((80, 50)).box == (15, 0, 35, 80)
    assert not frame.sees_all
    assert whole((7, 9)).sees_all
    assert frame.patch_box((1, 2), (4, 4)) == (50, 10, 60, 20)
