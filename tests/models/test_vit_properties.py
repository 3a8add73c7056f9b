"""What must hold for every valid ViT, tried on random ones: all options, any grid, any patch, sizes per block."""

from __future__ import annotations

import json
import math
from typing import Any

import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from vitscope.core.config import from_dict, to_dict
from vitscope.core.yaml import from_yaml, to_yaml
from vitscope.models.config import ViTConfig, pair
from vitscope.models.layers.patch import cut_patches, join_patches
from vitscope.models.vit import ViT

# The same examples every time: a run of CI says something about the change, not about luck.
tries = settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow], derandomize=True, database=None
)

rates = st.sampled_from([0.0, 0.1, 0.5])


def sizes(largest: int) -> st.SearchStrategy[tuple[int, int]]:
    return st.tuples(st.integers(1, largest), st.integers(1, largest))


@st.composite
def configs(draw: st.DrawFn) -> ViTConfig:
    """A valid ViT. Constraints between settings are met by construction, never by trial."""
    depth = draw(st.integers(1, 3))
    patch, grid = draw(sizes(4)), draw(sizes(4))
    image = (grid[0] * patch[0], grid[1] * patch[1])
    position = draw(st.sampled_from(["learned", "sincos", "rope", "relative", "none"]))
    head_dim = 4 * draw(st.integers(1, 2)) if position in ("rope", "sincos") else draw(st.integers(1, 8))
    if draw(st.booleans()):
        heads: Any = draw(st.integers(1, 3))
        shape: dict[str, Any] = {"num_heads": heads, "embed_dim": heads * head_dim}
    else:
        heads = draw(st.one_of(st.integers(1, 3), st.tuples(*[st.integers(1, 3)] * depth)))
        shape = {"num_heads": heads, "embed_dim": draw(st.integers(1, 3)) * head_dim, "head_dim": head_dim}
    pool = draw(st.sampled_from(["cls", "mean", "attention"]))
    class_token = pool == "cls" or draw(st.booleans())
    neurons = st.integers(1, 9)
    return ViTConfig(
        **shape,
        depth=depth,
        img_size=image[0] if image[0] == image[1] and draw(st.booleans()) else image,
        patch_size=patch[0] if patch[0] == patch[1] and draw(st.booleans()) else patch,
        in_chans=draw(st.integers(1, 4)),
        num_classes=draw(st.integers(0, 5)),
        mlp_ratio=draw(st.sampled_from([1.0, 2.5, 4.0])),
        mlp_dim=draw(st.one_of(st.none(), neurons, st.tuples(*[neurons] * depth))),
        mlp=draw(st.sampled_from(["mlp", "swiglu"])),
        act=draw(st.sampled_from(["gelu", "gelu_tanh", "relu", "silu", "quick_gelu"])),
        qkv_bias=draw(st.booleans()),
        qk_norm=draw(st.booleans()),
        norm_order=draw(st.sampled_from(["pre", "post"])),
        norm_eps=draw(st.sampled_from([1e-6, 1e-5])),
        layer_scale=draw(st.sampled_from([None, 1e-5, 1.0])),
        pool=pool,  # type: ignore[arg-type]
        class_token=class_token,
        distilled=pool == "cls" and draw(st.booleans()),
        num_registers=draw(st.integers(0, 3)),
        position=position,  # type: ignore[arg-type]
        prefix_position=draw(st.booleans()),
        drop_rate=draw(rates),
        attn_drop_rate=draw(rates),
        drop_path_rate=draw(rates),
        head_drop_rate=draw(rates),
        init=draw(st.sampled_from(["vit", "jax", "xavier", "mimetic"])),
    )


def built(config: ViTConfig) -> ViT:
    """The network with weights large enough that a wrong formula shows."""
    model = ViT(config)
    rng = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=rng)
            parameter.copy_(1 + 0.2 * noise if parameter.ndim == 1 else noise / math.sqrt(parameter[0].numel()))
    return model.eval()


def pictures(config: ViTConfig, batch: int = 2) -> Tensor:
    rng = torch.Generator().manual_seed(1)
    return torch.randn(batch, config.in_chans, *pair(config.img_size), generator=rng)


@given(configs())
@tries
def test_forward_shapes(config: ViTConfig) -> None:
    model, images = ViT(config).eval(), pictures(config)
    tokens = model.forward_features(images)
    assert tokens.shape == (2, config.num_tokens, config.embed_dim)
    out = model.forward_head(tokens)
    assert isinstance(out, Tensor)
    assert out.shape == (2, config.num_classes or config.embed_dim)
    assert out.isfinite().all()
    assert model.forward_head(tokens, pre_logits=True).shape == (2, model.num_features)  # type: ignore[union-attr]
    assert model.feature_map(tokens).shape == (2, config.embed_dim, *config.grid_size)


@given(configs())
@tries
def test_a_training_step_reaches_the_patch_filter(config: ViTConfig) -> None:
    torch.manual_seed(0)
    model = ViT(config).train()
    out = model(pictures(config))
    out.square().sum().backward()
    gradient = model.patch_embed.proj.weight.grad
    assert gradient is not None
    assert gradient.isfinite().all()


@given(configs())
@tries
def test_attention_rows_sum_to_one(config: ViTConfig) -> None:
    maps = built(config).attention_maps(pictures(config))
    assert list(maps) == list(range(config.depth))
    for layer, weights in maps.items():
        assert weights.shape == (2, config.block_heads[layer], config.num_tokens, config.num_tokens)
        assert weights.min() >= 0
        torch.testing.assert_close(weights.sum(dim=-1), torch.ones(weights.shape[:-1]))


@given(configs())
@tries
def test_fused_attention_is_the_plain_formula(config: ViTConfig) -> None:
    model = built(config)
    x = torch.randn(2, config.num_tokens, config.embed_dim, generator=torch.Generator().manual_seed(2))
    for block in model.blocks:
        attn = block.attn
        v = attn.qkv(x).reshape(2, -1, 3, attn.num_heads, attn.head_dim)[:, :, 2].transpose(1, 2)
        plain = attn.proj((attn.weights(x, model.rope) @ v).transpose(1, 2).flatten(2))
        torch.testing.assert_close(attn(x, model.rope), plain, atol=1e-5, rtol=1e-5)


@given(configs())
@tries
def test_patch_embedding_is_convolution_is_cut_and_project(config: ViTConfig) -> None:
    model, images = built(config), pictures(config)
    patch, proj = pair(config.patch_size), model.patch_embed.proj
    found, cut = model.patch_embed(images), cut_patches(images, patch)
    assert cut.shape[1] == config.num_patches
    convolved = F.conv2d(images, proj.weight, proj.bias, stride=patch).flatten(2).transpose(1, 2)
    torch.testing.assert_close(found, convolved, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(found, cut @ proj.weight.flatten(1).T + proj.bias, atol=1e-5, rtol=1e-5)
    assert torch.equal(join_patches(cut, patch, config.grid_size), images)


@given(configs())
@tries
def test_batch_equals_one_by_one(config: ViTConfig) -> None:
    model, images = built(config), pictures(config, batch=3)
    alone = torch.cat([model(image[None]) for image in images])
    torch.testing.assert_close(model(images), alone, atol=1e-5, rtol=1e-4)


@given(configs())
@settings(tries, max_examples=120)
def test_config_survives_every_way_of_writing_it(config: ViTConfig) -> None:
    assert from_dict(ViTConfig, to_dict(config)) == config
    assert from_dict(ViTConfig, json.loads(json.dumps(to_dict(config)))) == config
    assert from_yaml(ViTConfig, to_yaml(config)) == config
    assert hash(from_yaml(ViTConfig, to_yaml(config))) == hash(config)


@given(configs())
@tries
def test_config_rebuilds_the_same_network(config: ViTConfig) -> None:
    """Keys and shapes depend on the config alone, and weights moved over give the same answers."""
    model, images = built(config), pictures(config)
    again = ViT(from_yaml(ViTConfig, to_yaml(config))).eval()
    again.load_state_dict(model.state_dict(), strict=True)
    assert torch.equal(again(images), model(images))


@given(configs(), sizes(4))
@tries
def test_any_other_grid_can_be_set(config: ViTConfig, grid: tuple[int, int]) -> None:
    model = built(config)
    patch = pair(config.patch_size)
    model.set_input_size((grid[0] * patch[0], grid[1] * patch[1]))
    assert model.config.grid_size == grid
    tokens = model.forward_features(pictures(model.config))
    assert tokens.shape == (2, model.config.num_tokens, config.embed_dim)
    assert tokens.isfinite().all()
