"""Distances, entropies and token norms, against cases worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from infer.looking_models import photograph, predictor, seeing
from vitscope.infer.explain.explain import explain
from vitscope.infer.explain.heads import even_distance, heads_of
from vitscope.infer.explain.norms import norms_of
from vitscope.models.config import ViTConfig

CONFIG = ViTConfig(img_size=(16, 24), patch_size=8, embed_dim=8, depth=1, num_heads=1, num_registers=1, num_classes=2)
"""2 x 3 patches behind a class and a register token."""
TOKENS = 8


def test_a_head_that_looks_at_itself_looks_nowhere_far() -> None:
    found = heads_of(0, torch.eye(TOKENS)[None], CONFIG)
    assert found.distance_px == (0,)
    assert found.entropy_bits == (0,)
    assert found.prefix_share == (0,)


def test_a_head_that_looks_everywhere_alike() -> None:
    found = heads_of(3, torch.full((1, TOKENS, TOKENS), 1 / TOKENS), CONFIG)
    assert found.layer == 3
    assert found.entropy_bits[0] == pytest.approx(3)
    assert found.prefix_share[0] == pytest.approx(2 / TOKENS)
    places = [(8 * row, 8 * column) for row in range(2) for column in range(3)]
    mean = np.mean([math.dist(a, b) for a in places for b in places])
    assert found.distance_px[0] == pytest.approx(mean, rel=1e-6)
    assert even_distance(CONFIG) == pytest.approx(mean, rel=1e-6)


def test_a_head_that_looks_one_patch_to_the_right() -> None:
    weights = torch.zeros(2, TOKENS, TOKENS)
    for query in range(TOKENS):
        row, column = divmod(query - 2, 3)
        weights[:, query, 2 + row * 3 + (column + 1) % 3 if query >= 2 else 0] = 0.5
        weights[0, query, 1] += 0.5  # half of the first head's look has no place, and does not count
        weights[1, query, query] += 0.5
    found = heads_of(0, weights, CONFIG)
    # To the right 8 pixels, from the last column back 16: on average (8 + 8 + 16) / 3.
    assert found.distance_px == pytest.approx((32 / 3, 16 / 3))
    assert found.prefix_share == pytest.approx((0.5, 0))


def test_a_head_that_looks_at_no_patch_is_a_number_too() -> None:
    weights = torch.zeros(1, TOKENS, TOKENS)
    weights[..., 0] = 1
    found = heads_of(0, weights, CONFIG)
    assert found.distance_px == (0,)
    assert found.prefix_share == (1,)


def test_every_head_of_every_layer_is_told() -> None:
    asked = predictor(num_heads=(4, 2, 1), head_dim=8)
    found = explain(asked, photograph(), draws=None)
    with torch.no_grad():
        maps = asked.model.attention_maps(seeing(asked, photograph()))
    assert [layer.layer for layer in found.heads] == [0, 1, 2]
    assert [len(layer.entropy_bits) for layer in found.heads] == [4, 2, 1]
    for layer in found.heads:
        weights = maps[layer.layer][0].double().numpy()
        entropy = -(weights * np.log2(weights)).sum(axis=2).mean(axis=1)
        np.testing.assert_allclose(layer.entropy_bits, entropy, rtol=1e-4)


def test_long_tokens_are_found_where_they_are() -> None:
    tokens = torch.nn.functional.normalize(torch.randn(TOKENS, 8, generator=torch.Generator().manual_seed(0)), dim=1)
    tokens = tokens * torch.linspace(9.5, 10.5, TOKENS)[:, None]
    found = norms_of(tokens, CONFIG)
    assert found.outliers == []
    assert found.patches.shape == (2, 3)
    np.testing.assert_allclose(found.patches.ravel(), np.linspace(9.5, 10.5, TOKENS)[2:], rtol=1e-5)
    tokens[2 + 4] *= 10
    tokens[2 + 2] *= 30
    tokens[0] *= 100  # a class token may be as long as it likes
    found = norms_of(tokens, CONFIG)
    assert found.outliers == [(0, 2), (1, 1)]
    assert found.prefix[0] == pytest.approx(950)
    assert found.median == pytest.approx(10, abs=1)


def test_norms_are_those_of_the_last_block() -> None:
    asked = predictor(num_registers=1)
    found = explain(asked, photograph(), draws=None).norms
    with torch.no_grad():
        tokens = asked.model.forward_intermediates(seeing(asked, photograph()), -1)[2][0]
    np.testing.assert_allclose([*found.prefix, *found.patches.ravel()], tokens.norm(dim=-1).numpy(), rtol=1e-5)
