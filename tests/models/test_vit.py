"""The plain ViT against formulas written out by hand, one option at a time."""

from __future__ import annotations

import cmath
import copy
import io
import math
import pickle
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitscope.core.errors import InputError
from vitscope.core.threads import using_threads
from vitscope.models.config import ViTConfig, pair
from vitscope.models.layers.attention import Attention
from vitscope.models.layers.block import Block
from vitscope.models.layers.drop import rising_rates
from vitscope.models.layers.mlp import GatedMlp, Mlp
from vitscope.models.layers.patch import PatchEmbed, cut_patches, join_patches
from vitscope.models.layers.position import RelativeBias, rope_2d, rotate, sincos_2d
from vitscope.models.layers.scale import LayerScale
from vitscope.models.vit import ViT

SMALL: dict[str, Any] = {"img_size": 16, "patch_size": 4, "embed_dim": 32, "depth": 3, "num_heads": 4, "num_classes": 5}

# Every way a token can know its place, with and without tokens that have none.
PLACES: dict[str, dict[str, Any]] = {
    "learned": {},
    "learned_patches_only": {"prefix_position": False, "num_registers": 2},
    "sincos": {"position": "sincos"},
    "rope": {"position": "rope", "num_registers": 2},
    "relative": {"position": "relative", "num_registers": 1},
    "none": {"position": "none"},
}


def rough(model: nn.Module, seed: int = 0) -> Any:
    """Weights large enough that a wrong formula shows."""
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=rng)
            one_axis = parameter.ndim == 1
            parameter.copy_(1 + 0.2 * noise if one_axis else noise * 1.5 / math.sqrt(parameter[0].numel()))
    return model.eval()


def small(**settings: Any) -> ViT:
    return rough(ViT(ViTConfig(**{**SMALL, **settings})))


def pictures(model: ViT, batch: int = 2) -> Tensor:
    size = pair(model.config.img_size)
    return torch.randn(batch, model.config.in_chans, *size, generator=torch.Generator().manual_seed(1))


def close(found: Tensor, wanted: Tensor, atol: float = 1e-5) -> None:
    torch.testing.assert_close(found, wanted, atol=atol, rtol=1e-5)


# --- patches ---------------------------------------------------------------------------------------------------------


def strided_convolution(embed: PatchEmbed, images: Tensor) -> Tensor:
    """torch's own convolution with the patch filter: (B, C, H, W) -> (B, D, h, w)."""
    return F.conv2d(images, embed.proj.weight, embed.proj.bias, stride=embed.proj.patch_size)


@pytest.mark.parametrize("patch", [(4, 4), (2, 6)])
def test_patch_embedding_is_convolution_is_cut_and_project(patch: tuple[int, int]) -> None:
    embed = PatchEmbed(patch, in_chans=3, embed_dim=10)
    images = torch.randn(2, 3, 8, 12)
    close(embed(images), strided_convolution(embed, images).flatten(2).transpose(1, 2))
    close(embed(images), cut_patches(images, patch) @ embed.proj.weight.flatten(1).T + embed.proj.bias)


def test_patch_embedding_has_the_convolutions_gradients() -> None:
    """Of weight, bias and image; also for images whose memory is not laid out in order."""
    embed = PatchEmbed((4, 2), in_chans=3, embed_dim=6)
    images = torch.randn(2, 3, 8, 12).to(memory_format=torch.channels_last).requires_grad_()
    inputs = [images, *embed.parameters()]
    probe = torch.randn(2, 12, 6)
    found = torch.autograd.grad((embed(images) * probe).sum(), inputs)
    tokens = strided_convolution(embed, images).flatten(2).transpose(1, 2)
    for one, two in zip(found, torch.autograd.grad((tokens * probe).sum(), inputs), strict=True):
        close(one, two)


def test_patches_are_in_reading_order() -> None:
    rows, columns = torch.meshgrid(torch.arange(4.0), torch.arange(6.0), indexing="ij")
    patches = cut_patches(torch.stack([rows, columns])[None], (2, 3))
    assert patches.shape == (1, 4, 12)
    assert patches[0, 1].tolist() == [0, 0, 0, 1, 1, 1, 3, 4, 5, 3, 4, 5]  # rows channel, then columns channel
    assert patches[0, 2].tolist() == [2, 2, 2, 3, 3, 3, 0, 1, 2, 0, 1, 2]


def test_join_undoes_cut() -> None:
    images = torch.randn(2, 3, 8, 12)
    assert torch.equal(join_patches(cut_patches(images, (2, 3)), (2, 3), (4, 4)), images)


def test_base_patch_filter_has_the_known_size() -> None:
    """(B, 3, 224, 224) -> (B, 196, 768) with 589,824 weights."""
    embed = PatchEmbed((16, 16), 3, 768)
    assert embed(torch.zeros(1, 3, 224, 224)).shape == (1, 196, 768)
    assert embed.proj.weight.numel() == 589_824


# --- positions -------------------------------------------------------------------------------------------------------


def test_sincos_is_maes_formula() -> None:
    down, across, dim = 3, 5, 16
    table = sincos_2d((down, across), dim)
    quarter = dim // 4
    for y in range(down):
        for x in range(across):
            row = table[y * across + x]
            for k in range(quarter):
                frequency = 1 / 10_000 ** (k / quarter)
                wanted = (
                    math.sin(x * frequency),
                    math.cos(x * frequency),
                    math.sin(y * frequency),
                    math.cos(y * frequency),
                )
                for part, value in enumerate(wanted):
                    assert row[part * quarter + k].item() == pytest.approx(value, abs=1e-6)


def test_sincos_is_added_to_patches_and_not_to_the_prefix() -> None:
    model = small(position="sincos", num_registers=1)
    patches = torch.randn(2, 16, 32)
    tokens = model.place(patches)
    close(tokens[:, 2:], patches + sincos_2d((4, 4), 32))
    close(tokens[:, :2], torch.cat([model.cls_token, model.reg_token], dim=1).expand(2, -1, -1))  # type: ignore[list-item]


def rope_by_hand(vector: Tensor, y: int, x: int) -> Tensor:
    """Neighbouring numbers as one complex number each, turned by exp(i * angle)."""
    pairs = len(vector) // 2
    turned = []
    for index in range(pairs):
        place, k = (y, index) if index < pairs // 2 else (x, index - pairs // 2)
        angle = place * 100.0 ** (-k / (pairs // 2))
        number = complex(vector[2 * index].item(), vector[2 * index + 1].item()) * cmath.exp(1j * angle)
        turned += [number.real, number.imag]
    return torch.tensor(turned)


def test_rope_turns_complex_numbers_by_place() -> None:
    down, across, prefix, dim = 3, 4, 2, 8
    cos, sin = rope_2d((down, across), dim, prefix)
    vectors = torch.randn(prefix + down * across, dim)
    turned = rotate(vectors, cos, sin)
    assert torch.equal(turned[:prefix], vectors[:prefix])
    for y in range(down):
        for x in range(across):
            token = prefix + y * across + x
            close(turned[token], rope_by_hand(vectors[token], y, x))
    close(turned.norm(dim=1), vectors.norm(dim=1))


def test_rope_scores_depend_on_offsets_only() -> None:
    """One q and one k at every place: the score of two places is a function of how far apart they are."""
    down, across, dim = 4, 5, 12
    cos, sin = rope_2d((down, across), dim, 0)
    q, k = (torch.randn(dim).expand(down * across, dim) for _ in range(2))
    scores = (rotate(q, cos, sin) @ rotate(k, cos, sin).T).reshape(down, across, down, across)
    seen: dict[tuple[int, int], float] = {}
    for y in range(down):
        for x in range(across):
            for v in range(down):
                for u in range(across):
                    found = seen.setdefault((v - y, u - x), scores[y, x, v, u].item())
                    assert scores[y, x, v, u].item() == pytest.approx(found, abs=1e-5)
    assert len({round(score, 4) for score in seen.values()}) > 0.9 * len(seen)


def test_rope_attention_is_the_complex_formula() -> None:
    """A whole ViT's first attention map, from qkv on by hand, loops and complex numbers only."""
    model = small(position="rope", img_size=(8, 12), num_registers=1)
    images = pictures(model, batch=1)
    attn = model.blocks[0].attn
    tokens = model.blocks[0].norm1(model.place(model.patch_embed(images)))
    q, k, _ = attn.qkv(tokens)[0].reshape(8, 3, 4, 8).unbind(1)  # 2 prefix + 6 patches, 4 heads of 8
    places = [(0, 0), (0, 0), *[(y, x) for y in range(2) for x in range(3)]]
    found = model.attention_maps(images, layers=[0])[0][0]
    for head in range(4):
        qs, ks = (torch.stack([rope_by_hand(t[i, head], *places[i]) for i in range(8)]) for t in (q, k))
        close(found[head], (qs @ ks.T / math.sqrt(8)).softmax(dim=-1))


def test_relative_bias_is_a_double_loop_over_places() -> None:
    down, across, prefix, heads = 2, 3, 2, 4
    bias = RelativeBias((down, across), heads, prefix)
    nn.init.normal_(bias.table)
    found = bias()
    assert found.shape == (1, heads, 8, 8)
    offsets = (2 * down - 1) * (2 * across - 1)
    assert bias.table.shape == (offsets + 3, heads)
    for i in range(8):
        for j in range(8):
            if i >= prefix and j >= prefix:
                (yi, xi), (yj, xj) = divmod(i - prefix, across), divmod(j - prefix, across)
                row = (yi - yj + down - 1) * (2 * across - 1) + (xi - xj + across - 1)
            else:
                row = offsets + {(True, False): 0, (False, True): 1, (True, True): 2}[(i < prefix, j < prefix)]
            assert torch.equal(found[0, :, i, j], bias.table[row])


def test_relative_bias_reaches_the_scores() -> None:
    model = small(position="relative")
    images = pictures(model)
    attn = model.blocks[0].attn
    tokens = model.blocks[0].norm1(model.place(model.patch_embed(images)))
    q, k, _ = attn.qkv(tokens).reshape(2, 17, 3, 4, 8).permute(2, 0, 3, 1, 4)
    wanted = (q @ k.transpose(-2, -1) / math.sqrt(8) + attn.relative()).softmax(dim=-1)
    close(model.attention_maps(images, layers=[0])[0], wanted)


def test_without_positions_patches_may_be_shuffled() -> None:
    """The control: position 'none' cannot tell one order of patches from another; every other choice can."""
    order = torch.randperm(16, generator=torch.Generator().manual_seed(0))
    for name, settings in PLACES.items():
        model = small(**settings)
        images = pictures(model)
        shuffled = join_patches(cut_patches(images, (4, 4))[:, order], (4, 4), (4, 4))
        change = (model(images) - model(shuffled)).abs().max().item()
        assert (change < 1e-4) == (name == "none"), name


# --- attention, MLP, block -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings", [{}, {"qk_norm": True}, {"qkv_bias": False}, {"num_heads": (2, 1, 3), "head_dim": 12}]
)
@pytest.mark.parametrize("place", PLACES)
def test_fused_attention_is_weights_times_v(place: str, settings: dict[str, Any]) -> None:
    model = small(**{**PLACES[place], **settings})
    for block in model.blocks:
        attn: Attention = block.attn  # type: ignore[assignment]
        x = torch.randn(2, model.config.num_tokens, 32)
        heads, dim = attn.num_heads, attn.head_dim
        v = attn.qkv(x).reshape(2, -1, 3, heads, dim)[:, :, 2].transpose(1, 2)
        mixed = (attn.weights(x, model.rope) @ v).transpose(1, 2).flatten(2)
        close(attn(x, model.rope), attn.proj(mixed))


def test_attention_is_the_plain_formula() -> None:
    """softmax(q k^T / sqrt(d)) v, head by head, with the fused qkv split as q, k, v and then heads."""
    attn = rough(Attention(12, num_heads=3, head_dim=4))
    x = torch.randn(2, 5, 12)
    q, k, v = (F.linear(x, w, b) for w, b in zip(attn.qkv.weight.chunk(3), attn.qkv.bias.chunk(3), strict=True))
    heads = []
    for head in range(3):
        part = slice(4 * head, 4 * head + 4)
        scores = q[..., part] @ k[..., part].transpose(1, 2) / 2.0
        heads.append(scores.softmax(dim=-1) @ v[..., part])
    close(attn(x), attn.proj(torch.cat(heads, dim=-1)))


def test_qk_norm_acts_per_head_before_rotation() -> None:
    attn = rough(Attention(16, num_heads=2, head_dim=8, qk_norm=True))
    rope = rope_2d((2, 2), 8, 1)
    x = torch.randn(1, 5, 16)
    q, k, _ = attn.qkv(x).reshape(1, 5, 3, 2, 8).permute(2, 0, 3, 1, 4)
    q, k = rotate(attn.q_norm(q), *rope), rotate(attn.k_norm(k), *rope)
    close(attn.weights(x, rope), (q @ k.transpose(-2, -1) / math.sqrt(8)).softmax(dim=-1))


@pytest.mark.parametrize(
    ("act", "formula"),
    [
        ("gelu", lambda x: x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))),
        ("gelu_tanh", lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))),
        ("relu", lambda x: x.clamp(min=0)),
        ("silu", lambda x: x / (1 + torch.exp(-x))),
        ("quick_gelu", lambda x: x / (1 + torch.exp(-1.702 * x))),
    ],
)
def test_mlp_is_fc1_act_fc2(act: str, formula: Any) -> None:
    x = torch.randn(3, 8)
    mlp = rough(Mlp(8, 20, act=act))
    close(mlp(x), mlp.fc2(formula(mlp.fc1(x))))
    gated = rough(GatedMlp(8, 20, act=act))
    gate, value = gated.fc1(x)[:, :20], gated.fc1(x)[:, 20:]
    close(gated(x), gated.fc2(formula(gate) * value))


def block_of(**settings: Any) -> Block:
    return rough(Block(16, Attention(16, 2, 8), Mlp(16, 24), **settings))


def test_pre_norm_order() -> None:
    block, x = block_of(layer_scale=0.5), torch.randn(2, 5, 16)
    middle = x + block.ls1.gamma * block.attn(block.norm1(x))
    close(block(x), middle + block.ls2.gamma * block.mlp(block.norm2(middle)))


def test_post_norm_order() -> None:
    block, x = block_of(norm_order="post", layer_scale=0.5), torch.randn(2, 5, 16)
    middle = block.norm1(x + block.ls1.gamma * block.attn(x))
    close(block(x), block.norm2(middle + block.ls2.gamma * block.mlp(middle)))
    close(block.attention_weights(x), block.attn.weights(x))


def test_post_norm_reaches_the_model() -> None:
    model = small(norm_order="post", depth=1)
    images = pictures(model)
    x = model.place(model.patch_embed(images))
    block = model.blocks[0]
    middle = block.norm1(x + block.attn(x))
    tokens = model.norm(block.norm2(middle + block.mlp(middle)))
    close(model(images), model.head(tokens[:, 0]))


def test_layer_scale_multiplies_each_channel() -> None:
    scale = LayerScale(4, 1e-5)
    assert torch.equal(scale.gamma, torch.full((4,), 1e-5))
    scale.gamma.data = torch.tensor([1.0, 2.0, 3.0, 4.0])
    assert torch.equal(scale(torch.ones(2, 3, 4)), scale.gamma.expand(2, 3, 4))


def test_layer_scale_value_reaches_every_block() -> None:
    model = ViT(ViTConfig(**SMALL, layer_scale=0.25))
    assert all(torch.equal(b.ls1.gamma, torch.full((32,), 0.25)) for b in model.blocks)
    assert all(torch.equal(b.ls2.gamma, torch.full((32,), 0.25)) for b in model.blocks)


# --- prefix tokens, pooling, heads -----------------------------------------------------------------------------------


def test_prefix_order_is_class_distillation_registers() -> None:
    model = small(distilled=True, num_registers=2)
    assert model.config.num_prefix_tokens == 4
    prefix = model.place(torch.zeros(1, 16, 32))[:, :4] - model.pos_embed[:, :4]
    close(prefix, torch.cat([model.cls_token, model.dist_token, model.reg_token], dim=1))  # type: ignore[list-item]


def test_registers_are_seen_by_attention_and_left_out_of_pooling() -> None:
    model = small(pool="mean", num_registers=3)
    images = pictures(model)
    tokens = model.forward_features(images)
    assert tokens.shape == (2, 1 + 3 + 16, 32)
    close(model.pool(tokens), tokens[:, 4:].mean(dim=1))
    before = model(images)
    model.reg_token.data.neg_()
    assert (model(images) - before).abs().max() > 1e-3


def test_cls_pooling_takes_the_first_token() -> None:
    model = small(num_registers=1)
    tokens = model.forward_features(pictures(model))
    close(model.forward_head(tokens), model.head(tokens[:, 0]))


def test_attention_pooling_asks_patches_only() -> None:
    model = small(pool="attention", num_registers=2)
    tokens = model.forward_features(pictures(model))
    pool, patches = model.attn_pool, tokens[:, 3:]
    q = pool.q(pool.latent)[0, 0].view(4, 8)
    k, v = (t.reshape(2, 16, 4, 8) for t in pool.kv(patches).chunk(2, dim=-1))
    weights = (torch.einsum("hd,bnhd->bhn", q, k) / math.sqrt(8)).softmax(dim=-1)
    answer = pool.proj(torch.einsum("bhn,bnhd->bhd", weights, v).flatten(1))
    close(model.pool(tokens), answer + pool.mlp(pool.norm(answer)))


def test_distilled_model_averages_its_heads() -> None:
    model = small(distilled=True)
    images = pictures(model)
    tokens = model.forward_features(images)
    one, two = model.head(tokens[:, 0]), model.head_dist(tokens[:, 1])
    close(model(images), (one + two) / 2)
    close(model.forward_head(tokens, pre_logits=True), (tokens[:, 0] + tokens[:, 1]) / 2)
    close(model.train()(images), (one + two) / 2)


def test_distilled_training_returns_both_logits() -> None:
    model = small(distilled=True)
    model.distilled_training = True
    images = pictures(model)
    assert model.eval()(images).shape == (2, 5)
    logits, dist_logits = model.train()(images)
    tokens = model.forward_features(images)
    close(logits, model.head(tokens[:, 0]))
    close(dist_logits, model.head_dist(tokens[:, 1]))


# --- looking inside --------------------------------------------------------------------------------------------------


def count_calls(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Counts fused attention calls and plain weight computations."""
    calls = {"fused": 0, "plain": 0}
    fused, plain = F.scaled_dot_product_attention, Attention.weights

    def counted_fused(*args: Any, **kwargs: Any) -> Tensor:
        calls["fused"] += 1
        return fused(*args, **kwargs)

    def counted_plain(*args: Any, **kwargs: Any) -> Tensor:
        calls["plain"] += 1
        return plain(*args, **kwargs)

    monkeypatch.setattr(F, "scaled_dot_product_attention", counted_fused)
    monkeypatch.setattr(Attention, "weights", counted_plain)
    return calls


@pytest.mark.parametrize(
    ("layers", "fused", "plain"), [([2], 2, 1), ([0], 0, 1), ([1, -2], 3, 2), (None, 4, 5), ([-1], 4, 1)]
)
def test_attention_maps_compute_only_what_is_asked(
    monkeypatch: pytest.MonkeyPatch, layers: list[int] | None, fused: int, plain: int
) -> None:
    """The chosen layers by the plain formula, those on the way fused, those behind not at all."""
    model = small(depth=5)
    calls = count_calls(monkeypatch)
    model.attention_maps(pictures(model), layers)
    assert calls == {"fused": fused, "plain": plain}


def test_forward_never_computes_plain_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small()
    calls = count_calls(monkeypatch)
    model(pictures(model))
    assert calls == {"fused": 3, "plain": 0}


def test_attention_maps_do_not_depend_on_the_choice() -> None:
    model = small()
    images = pictures(model)
    every = model.attention_maps(images)
    assert list(every) == [0, 1, 2]
    chosen = model.attention_maps(images, layers=[-1, 0])
    assert sorted(chosen) == [0, 2]
    for layer, weights in chosen.items():
        assert torch.equal(weights, every[layer])
        close(weights.sum(dim=-1), torch.ones(2, 4, 17))


@pytest.mark.parametrize(
    "settings",
    [
        {"num_registers": 2, "img_size": (8, 20)},
        {"pool": "mean", "class_token": False, "position": "rope"},
        {"pool": "attention", "norm_order": "post", "position": "relative"},
        {"distilled": True, "qk_norm": True, "num_heads": (1, 2, 4), "head_dim": 8},
    ],
)
def test_attention_maps_explain_the_forward(settings: dict[str, Any]) -> None:
    """Running every block on the maps (weights @ v) instead of fused attention gives the model's own answer."""
    model = small(**settings)
    images = pictures(model)
    maps = model.attention_maps(images)
    tokens = model.place(model.patch_embed(images))
    pre = model.config.norm_order == "pre"
    for layer, block in enumerate(model.blocks):
        attn = block.attn
        read = block.norm1(tokens) if pre else tokens
        v = attn.qkv(read).reshape(2, -1, 3, attn.num_heads, attn.head_dim)[:, :, 2].transpose(1, 2)
        mixed = attn.proj((maps[layer] @ v).transpose(1, 2).flatten(2))
        if pre:
            tokens = tokens + mixed
            tokens = tokens + block.mlp(block.norm2(tokens))
        else:
            tokens = block.norm1(tokens + mixed)
            tokens = block.norm2(tokens + block.mlp(tokens))
    close(model.norm(tokens), model.forward_features(images), atol=1e-4)


@pytest.mark.parametrize("method", ["attention_maps", "forward_intermediates"])
def test_layers_out_of_range_are_refused(method: str) -> None:
    model = small()
    images = pictures(model)
    for layer in (3, -4):
        with pytest.raises(InputError, match=rf"expected numbers from -3 to 2, received {layer}"):
            getattr(model, method)(images, [layer])
    with pytest.raises(InputError, match=r"expected at least one layer, received \[\]"):
        getattr(model, method)(images, [])


def test_forward_intermediates_are_the_stations_of_the_road() -> None:
    model = small()
    images = pictures(model)
    tokens = model.place(model.patch_embed(images))
    found = model.forward_intermediates(images)
    for layer, block in enumerate(model.blocks):
        tokens = block(tokens)
        assert torch.equal(found[layer], tokens)
    last = model.forward_intermediates(images, [-1], norm=True)
    assert torch.equal(last[2], model.forward_features(images))


def test_forward_intermediates_stop_early(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small(depth=5)
    calls = count_calls(monkeypatch)
    assert list(model.forward_intermediates(pictures(model), [1, 0])) == [0, 1]
    assert calls["fused"] == 2


def test_feature_map_lies_as_the_image_does() -> None:
    """The token of patch (y, x) stands at [:, :, y, x], on a grid that is not square."""
    model = small(img_size=(8, 20), num_registers=2)
    tokens = torch.randn(2, 3 + 10, 32)
    picture = model.feature_map(tokens)
    assert picture.shape == (2, 32, 2, 5)
    for y in range(2):
        for x in range(5):
            assert torch.equal(picture[:, :, y, x], tokens[:, 3 + 5 * y + x])
    with torch.no_grad():
        embedded = model.patch_embed(pictures(model))
        padded = torch.cat([torch.zeros(2, 3, 32), embedded], dim=1)
        close(model.feature_map(padded), strided_convolution(model.patch_embed, pictures(model)))


# --- training aids ---------------------------------------------------------------------------------------------------


def gradients(model: ViT, images: Tensor, seed: int = 0) -> tuple[Tensor, dict[str, Tensor]]:
    model.zero_grad()
    torch.manual_seed(seed)
    out = model.train()(images)
    out.square().mean().backward()
    return out, {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("place", PLACES)
def test_gradient_checkpointing_changes_nothing(place: str) -> None:
    model = small(**PLACES[place], drop_rate=0.1, drop_path_rate=0.3)
    images = pictures(model)
    out, wanted = gradients(model, images)
    model.set_grad_checkpointing()
    again, found = gradients(model, images)
    assert torch.equal(again, out)
    assert found.keys() == wanted.keys()
    for name, gradient in found.items():
        assert torch.equal(gradient, wanted[name]), name


def test_gradient_checkpointing_recomputes(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small()
    calls = count_calls(monkeypatch)
    gradients(model, pictures(model))
    assert calls["fused"] == 3
    model.set_grad_checkpointing()
    gradients(model, pictures(model))
    assert calls["fused"] == 3 + 6
    model.set_grad_checkpointing(False)
    gradients(model, pictures(model))
    assert calls["fused"] == 9 + 3


def test_no_weight_decay_names_tokens_and_tables() -> None:
    assert small(distilled=True, num_registers=1).no_weight_decay() == {
        "cls_token",
        "dist_token",
        "reg_token",
        "pos_embed",
    }
    pooled = small(pool="attention", class_token=False, position="relative")
    assert pooled.no_weight_decay() == {"attn_pool.latent"} | {f"blocks.{i}.attn.relative.table" for i in range(3)}
    assert small(position="sincos", class_token=False, pool="mean").no_weight_decay() == set()


def test_reset_classifier_replaces_the_head_and_nothing_else() -> None:
    model = small(distilled=True).double()
    images = pictures(model).double()
    before = {key: value.clone() for key, value in model.state_dict().items() if "head" not in key}
    model.reset_classifier(3)
    assert model(images).shape == (2, 3)
    assert model.num_classes == model.config.num_classes == 3
    assert model.head.weight.dtype == model.head_dist.weight.dtype == torch.float64
    assert not model.head.weight.equal(model.head_dist.weight)
    model.reset_classifier(0)
    assert model(images).shape == (2, 32)
    assert set(model.state_dict()) == set(before)
    model.reset_classifier(7)
    assert model(images).shape == (2, 7)
    for key, value in before.items():
        assert torch.equal(model.state_dict()[key], value)


@pytest.mark.parametrize("place", PLACES)
def test_set_input_size_makes_the_model_of_that_size(place: str) -> None:
    """Afterwards the network is what its config says: a rebuilt one takes its weights and gives its answers."""
    model = small(**PLACES[place])
    old = pictures(model)
    model.set_input_size((24, 12))
    assert model.config.img_size == (24, 12)
    images = pictures(model)
    rebuilt = ViT(model.config).eval()
    rebuilt.load_state_dict(model.state_dict(), strict=True)
    assert torch.equal(model(images), rebuilt(images))
    assert model.attention_maps(images)[0].shape[-1] == model.config.num_tokens
    with pytest.raises(InputError, match="set_input_size"):
        model(old)


def test_refused_input_size_leaves_the_model_as_it_was() -> None:
    model = small()
    images = pictures(model)
    before = model(images)
    with pytest.raises(ValueError, match="expected a multiple of patch_size 4, received 18"):
        model.set_input_size(18)
    assert torch.equal(model(images), before)
    model.set_input_size(16)
    assert torch.equal(model(images), before)


def test_relative_table_is_moved_over_offsets_and_keeps_its_extra_rows() -> None:
    model = small(position="relative", num_registers=1)
    table = model.blocks[0].attn.relative.table
    ramp = torch.arange(-3.0, 4.0)
    offsets = (ramp[:, None] + torch.zeros(7)).reshape(-1, 1).expand(49, 4)  # grows with dy alone
    table.data[:49] = offsets
    extra = table.data[49:].clone()
    model.set_input_size((8, 24))  # grid 4x4 -> 2x6
    moved = model.blocks[0].attn.relative.table
    assert moved.shape == (3 * 11 + 3, 4)
    assert torch.equal(moved[33:], extra)
    grid = moved[:33].reshape(3, 11, 4)
    close(grid, grid[:, :1].expand(-1, 11, -1))
    assert (grid[1:, 0, 0] > grid[:-1, 0, 0]).all()
    close(grid[1, 0], torch.zeros(4))


# --- sizes per block -------------------------------------------------------------------------------------------------


def test_heads_and_neurons_may_differ_from_block_to_block() -> None:
    """Counts by sparse.md's formula: 4d + 4*d*dh*h + 3*dh*h + d + 2*d*m + m + d."""
    heads, neurons, d, dh = (4, 1, 2), (64, 8, 24), 32, 8
    model = small(num_heads=heads, head_dim=dh, mlp_dim=neurons)
    assert model(pictures(model)).shape == (2, 5)
    for block, h, m in zip(model.blocks, heads, neurons, strict=True):
        wanted = 4 * d + 4 * d * dh * h + 3 * dh * h + d + 2 * d * m + m + d
        assert sum(p.numel() for p in block.parameters()) == wanted
    maps = model.attention_maps(pictures(model))
    assert [maps[layer].shape[1] for layer in range(3)] == list(heads)


def test_equal_sizes_per_block_are_the_plain_model() -> None:
    plain = small()
    spelled = ViT(ViTConfig(**{**SMALL, "num_heads": (4, 4, 4), "mlp_dim": (128, 128, 128)})).eval()
    spelled.load_state_dict(plain.state_dict(), strict=True)
    assert torch.equal(spelled(pictures(plain)), plain(pictures(plain)))


# --- randomness ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", ["drop_rate", "attn_drop_rate", "drop_path_rate", "head_drop_rate"])
def test_dropouts_act_in_training_only(rate: str) -> None:
    model = small(**{rate: 0.5})
    images = pictures(model)
    quiet = small()(images)
    assert torch.equal(model.eval()(images), quiet)
    model.train()
    assert not torch.equal(model(images), model(images))
    assert not torch.equal(model(images), quiet)


def test_drop_rate_stands_in_all_four_places() -> None:
    model = small(drop_rate=0.1, attn_drop_rate=0.2, head_drop_rate=0.3)
    assert model.pos_drop.p == 0.1
    assert model.head_drop.p == 0.3
    for block in model.blocks:
        assert (block.attn.proj_drop.p, block.mlp.drop.p, block.attn.attn_drop) == (0.1, 0.1, 0.2)


def test_drop_path_rises_linearly() -> None:
    assert rising_rates(0.4, 5) == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4])
    assert rising_rates(0.4, 1) == [0.0]
    model = small(depth=4, drop_path_rate=0.3)
    assert [block.drop_path1.rate for block in model.blocks] == pytest.approx([0.0, 0.1, 0.2, 0.3])
    assert [block.drop_path2.rate for block in model.blocks] == pytest.approx([0.0, 0.1, 0.2, 0.3])


# --- how weights begin -----------------------------------------------------------------------------------------------

WIDE: dict[str, Any] = {
    "img_size": 32,
    "patch_size": 8,
    "embed_dim": 192,
    "depth": 2,
    "num_heads": 3,
    "num_classes": 100,
}


def fresh(scheme: str, **settings: Any) -> ViT:
    torch.manual_seed(0)
    return ViT(ViTConfig(**{**WIDE, "init": scheme, "layer_scale": 1e-4, **settings}))


@pytest.mark.parametrize("scheme", ["vit", "jax", "xavier", "mimetic"])
def test_every_scheme_starts_norms_biases_tokens_and_head_alike(scheme: str) -> None:
    model = fresh(scheme, num_registers=2, pool="attention")
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            assert parameter.abs().max() < 1e-5, name
        elif "norm" in name:
            assert torch.equal(parameter, torch.ones_like(parameter)), name
        elif name.endswith("gamma"):
            assert torch.equal(parameter, torch.full_like(parameter, 1e-4)), name
        elif name.endswith(("_token", "latent")):
            assert 0.015 < parameter.std() < 0.025, name
    assert model.head.weight.std().item() == pytest.approx(0.25 / math.sqrt(192), rel=0.03)


def test_head_of_a_narrow_model_has_std_002() -> None:
    model = fresh("vit", embed_dim=48, num_heads=3, num_classes=1000)
    assert model.head.weight.std().item() == pytest.approx(0.02, rel=0.03)


def linears(model: ViT) -> dict[str, nn.Linear]:
    return {name: layer for name, layer in model.blocks.named_modules() if isinstance(layer, nn.Linear)}


def test_vit_scheme_is_truncated_normal_002() -> None:
    model = fresh("vit")
    for name, layer in linears(model).items():
        assert layer.weight.std().item() == pytest.approx(0.02, rel=0.03), name
    assert model.patch_embed.proj.weight.std().item() == pytest.approx(0.02, rel=0.03)
    assert model.pos_embed.std().item() == pytest.approx(0.02, rel=0.05)


@pytest.mark.parametrize("scheme", ["jax", "xavier"])
def test_xavier_linears(scheme: str) -> None:
    for name, layer in linears(fresh(scheme)).items():
        bound = math.sqrt(6 / (layer.in_features + layer.out_features))
        assert layer.weight.abs().max().item() == pytest.approx(bound, rel=0.01), name
        assert layer.weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.03), name


def test_jax_patch_filter_is_lecun_cut_at_two_sigmas() -> None:
    """std 1 / sqrt(fan_in) after the cut, and nothing beyond the cut."""
    model = fresh("jax")
    weight = model.patch_embed.proj.weight
    wanted = 1 / math.sqrt(3 * 8 * 8)
    assert weight.std().item() == pytest.approx(wanted, rel=0.02)
    assert weight.abs().max().item() <= 2 * wanted / 0.8796 * 1.001
    assert 0 < model.blocks[0].mlp.fc1.bias.abs().max() < 1e-5
    assert model.blocks[0].attn.qkv.bias.abs().max() == 0


def test_xavier_patch_filter_is_seen_as_a_linear_layer() -> None:
    weight = fresh("xavier").patch_embed.proj.weight
    assert weight.abs().max().item() == pytest.approx(math.sqrt(6 / (192 + 192)), rel=0.01)


def test_mimetic_attention_looks_trained() -> None:
    """q k^T positive and v proj negative on the diagonal, both far above the rest."""
    model = fresh("mimetic")
    for block in model.blocks:
        q, k, v = block.attn.qkv.weight.detach().reshape(3, 3, 64, 192).unbind(0)
        for head in range(3):
            product = q[head].T @ k[head]
            diagonal, rest = product.diagonal(), product - product.diagonal().diag()
            assert diagonal.mean() > 0.15
            assert (diagonal > 0).float().mean() > 0.95
            assert diagonal.mean() > 4 * rest.abs().mean()
        product = block.attn.proj.weight.detach() @ v.reshape(192, 192)
        close(product.diagonal().mean(), torch.tensor(-0.4), atol=0.02)
        off = product - product.diagonal().diag()
        assert off.std().item() == pytest.approx(0.4 / math.sqrt(192), rel=0.05)
        assert (product.diagonal() < 0).all()


def test_mimetic_weights_are_the_seeds_whatever_the_number_of_threads() -> None:
    def drawn(threads: int) -> torch.Tensor:
        torch.manual_seed(0)
        with using_threads(threads):
            config = ViTConfig(img_size=32, patch_size=4, embed_dim=384, depth=1, num_heads=6, init="mimetic")
            return ViT(config).state_dict()["blocks.0.attn.qkv.weight"]

    assert torch.equal(drawn(1), drawn(2))


def test_mimetic_positions_begin_as_sincos() -> None:
    model = fresh("mimetic", num_registers=2)
    close(model.pos_embed[0, 3:], sincos_2d((4, 4), 192))
    assert model.pos_embed[0, :3].std() < 0.03


@pytest.mark.parametrize("scheme", ["vit", "jax", "xavier", "mimetic"])
@pytest.mark.parametrize("settings", [{"num_heads": (3, 1), "head_dim": 16}, {"embed_dim": 30, "head_dim": 40}])
def test_schemes_take_unusual_shapes(scheme: str, settings: dict[str, Any]) -> None:
    model = fresh(scheme, **settings)
    assert model(pictures(model)).isfinite().all()


def test_same_seed_same_weights() -> None:
    one, two = fresh("mimetic").state_dict(), fresh("mimetic").state_dict()
    assert all(torch.equal(one[key], two[key]) for key in one)


# --- kinds of numbers, copies ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("place", PLACES)
def test_other_number_formats(place: str, dtype: torch.dtype) -> None:
    """Forward, attention maps and another input size, all in the model's own format."""
    model = small(**PLACES[place], layer_scale=0.5)
    images = pictures(model)
    wanted = model(images)
    model.to(dtype)
    found = model(images.to(dtype))
    assert found.dtype == dtype
    assert (found.double() - wanted.double()).abs().max() < {torch.float64: 1e-4, torch.float16: 0.05}.get(dtype, 0.3)
    assert model.attention_maps(images.to(dtype))[0].dtype == torch.promote_types(dtype, torch.float32)
    model.set_input_size(24)
    assert model(pictures(model).to(dtype)).dtype == dtype


@pytest.mark.parametrize("place", PLACES)
def test_autocast_runs_every_kind_of_position(place: str) -> None:
    model = small(**PLACES[place])
    images = pictures(model)
    with torch.autocast("cpu", torch.bfloat16):
        found = model(images)
        maps = model.attention_maps(images, [0])[0]
    assert (found.float() - model(images)).abs().max() < 0.3
    assert (maps.float().sum(dim=-1) - 1).abs().max() < 0.02


@pytest.mark.parametrize("place", PLACES)
def test_built_on_meta_and_filled_is_the_same_model(place: str) -> None:
    """Nothing that is not saved may be lost on the way: buffers are computed again."""
    model = small(**PLACES[place])
    with torch.device("meta"):
        other = ViT(model.config)
    assert all(t.is_meta for t in (*other.parameters(), *other.buffers()))
    other = other.to_empty(device="cpu").eval()
    other.load_state_dict(model.state_dict(), strict=True)
    other.reset_buffers()
    assert torch.equal(other(pictures(model)), model(pictures(model)))


@pytest.mark.parametrize("act", ["gelu", "gelu_tanh", "quick_gelu"])
@pytest.mark.parametrize("place", PLACES)
def test_copies_are_equal_and_independent(place: str, act: str) -> None:
    model = small(**PLACES[place], act=act)
    images = pictures(model)
    wanted = model(images)
    copied, pickled = copy.deepcopy(model), pickle.loads(pickle.dumps(model))
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    saved = torch.load(buffer, weights_only=False)
    with torch.no_grad():
        model.patch_embed.proj.weight.zero_()
    for other in (copied, pickled, saved):
        assert torch.equal(other(images), wanted)
        assert other.config == model.config
