"""Our ViT is timm's: same counts, same keys, same numbers, same attention, same gradients.

timm's own initialisation hides errors (with LayerScale 1e-5 even a wrong head count changes nothing), so every
comparison first fills timm's network with large random weights and copies them over with strict=True.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import timm
import torch
import torch.nn.functional as F
from random_weights import fill_with_large_random_weights
from timm.layers import SwiGLUPacked, gen_relative_position_index, resample_abs_pos_embed, set_fused_attn
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from vitscope.core.config import updated
from vitscope.models.build import build_model
from vitscope.models.config import ViTConfig
from vitscope.models.layers.drop import DropPath
from vitscope.models.layers.position import relative_index
from vitscope.models.layers.resample import resample_positions
from vitscope.models.variants import VARIANTS, model_config

LOGITS = 2e-5
MAPS = 1e-5

SHARED_NAMES = [name for name in VARIANTS if timm.is_model(name)]

MUST_AGREE = [
    "vit_tiny_patch16_224",
    "vit_small_patch16_224",
    "vit_base_patch16_224",
    "vit_large_patch16_224",
    "vit_base_patch32_224",
    "vit_base_patch8_224",
    "vit_small_patch16_384",
    "deit_base_patch16_224",
    "deit_base_distilled_patch16_224",
    "vit_small_patch14_dinov2",
    "vit_small_patch14_reg4_dinov2",
]


# --- tools -----------------------------------------------------------------------------------------------------------


def timm_on_meta(name: str, **settings: Any) -> nn.Module:
    with torch.device("meta"):
        return timm.create_model(name, **settings)


def shapes(model: nn.Module) -> dict[str, tuple[int, ...]]:
    return {key: tuple(value.shape) for key, value in model.state_dict().items()}


def twin_of(peer: nn.Module, config: ViTConfig) -> Any:
    """Our network of `config` with the peer's weights, every one of them; built without spending time on init."""
    with torch.device("meta"):
        ours = build_model(config)
    weights = {key: value.clone() for key, value in peer.state_dict().items()}
    ours.load_state_dict(weights, strict=True, assign=True)
    ours.reset_buffers()
    return ours.eval()


def filled(peer: nn.Module, seed: int = 0) -> nn.Module:
    fill_with_large_random_weights(peer, seed=seed)
    return peer.eval()


def peer_and_ours(name: str, **settings: Any) -> tuple[Any, Any]:
    """timm's network under large random weights, and ours with the same ones."""
    peer = filled(timm_on_meta(name, **settings).to_empty(device="cpu"))
    return peer, twin_of(peer, updated(model_config(name), **settings))


def pictures(config: ViTConfig, batch: int = 1, seed: int = 1) -> Tensor:
    size = (config.img_size, config.img_size) if isinstance(config.img_size, int) else config.img_size
    return torch.randn(batch, config.in_chans, *size, generator=torch.Generator().manual_seed(seed))


def difference(left: Tensor, right: Tensor) -> float:
    assert left.shape == right.shape
    return (left - right).abs().max().item()


SMALL: dict[str, Any] = {"img_size": 32, "patch_size": 8, "embed_dim": 48, "depth": 3, "num_heads": 4, "num_classes": 7}


def small_pair(ours: dict[str, Any], theirs: dict[str, Any]) -> tuple[VisionTransformer, Any]:
    """A small ViT with the same option spelled in timm's words and in ours."""
    torch.manual_seed(0)
    norm = partial(nn.LayerNorm, eps=1e-6)
    peer = VisionTransformer(**{**SMALL, "norm_layer": norm, **theirs})
    return filled(peer), twin_of(peer, ViTConfig(**{**SMALL, **ours}))  # type: ignore[return-value]


# --- (a) same counts, keys, shapes -----------------------------------------------------------------------------------


def test_the_issues_models_are_shared_names() -> None:
    assert set(MUST_AGREE) <= set(SHARED_NAMES)
    assert len(SHARED_NAMES) >= 41


@pytest.mark.parametrize("name", SHARED_NAMES)
def test_keys_shapes_and_count_are_timms(name: str) -> None:
    """At default settings, so image size (through the position table) and class count are timm's too."""
    peer = timm_on_meta(name)
    with torch.device("meta"):
        ours = build_model(model_config(name))
    assert shapes(ours) == shapes(peer)
    assert {key for key, _ in ours.named_parameters()} == {key for key, _ in peer.named_parameters()}
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in peer.parameters())
    assert ours.num_classes == peer.num_classes
    size = model_config(name).img_size
    assert (3, size, size) == tuple(peer.default_cfg["input_size"])


# --- (b) same numbers ------------------------------------------------------------------------------------------------


# These two differ from others of the list in numbers only, and take as long as all of them.
LONG = ("vit_large_patch16_224", "vit_base_patch8_224")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in LONG else []) for name in MUST_AGREE]
)
@torch.inference_mode()
def test_output_is_timms(name: str) -> None:
    """Logits, or pooled features where the published model has no head."""
    peer, ours = peer_and_ours(name)
    images = pictures(ours.config)
    wanted = peer(images)
    found = ours(images)
    assert found.shape == (1, ours.num_classes or ours.num_features)
    assert wanted.std() > 0.3, "the weights are too small to show an error"
    worst = difference(found, wanted)
    print(f"{name}: max difference {worst:.1e} of outputs with std {wanted.std():.2f}")
    assert worst <= LOGITS


@pytest.mark.parametrize("name", ["vit_small_patch14_dinov2", "vit_small_patch14_reg4_dinov2"])
@torch.inference_mode()
def test_dinov2_with_a_head_is_timms(name: str) -> None:
    peer, ours = peer_and_ours(name, num_classes=10, img_size=98)
    images = pictures(ours.config, batch=2)
    assert ours(images).shape == (2, 10)
    assert difference(ours(images), peer(images)) <= LOGITS


@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "deit_tiny_distilled_patch16_224"])
@torch.inference_mode()
def test_pooled_features_are_timms(name: str) -> None:
    """num_classes=0 everywhere gives what timm gives."""
    peer, ours = peer_and_ours(name, num_classes=0)
    images = pictures(ours.config, batch=2)
    assert ours(images).shape == (2, 192)
    assert difference(ours(images), peer(images)) <= LOGITS


@torch.inference_mode()
def test_all_tokens_are_timms() -> None:
    """forward_features, forward_head and every block's output, not only the end of the road."""
    peer, ours = peer_and_ours("vit_tiny_patch16_224")
    images = pictures(ours.config, batch=2)
    tokens = ours.forward_features(images)
    assert difference(tokens, peer.forward_features(images)) <= LOGITS
    pooled = ours.forward_head(tokens, pre_logits=True)
    assert difference(pooled, peer.forward_head(tokens, pre_logits=True)) <= LOGITS
    wanted = peer.forward_intermediates(images, return_prefix_tokens=True, intermediates_only=True, output_fmt="NLC")
    found = ours.forward_intermediates(images)
    assert len(found) == len(wanted) == 12
    for i, (patches, prefix) in enumerate(wanted):
        assert difference(found[i], torch.cat([prefix, patches], dim=1)) <= 1e-4  # tokens grow to about 20 here


# --- (c) same attention ----------------------------------------------------------------------------------------------


@pytest.fixture
def unfused() -> Iterator[None]:
    set_fused_attn(False)
    yield
    set_fused_attn(True)


def timm_attention(peer: nn.Module, images: Tensor) -> dict[int, Tensor]:
    """What timm's unfused attention hands to its dropout, layer by layer."""
    maps: dict[int, Tensor] = {}

    def keep(layer: int) -> Any:
        def hook(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            maps[layer] = inputs[0]

        return hook

    hooks = [b.attn.attn_drop.register_forward_pre_hook(keep(i)) for i, b in enumerate(peer.blocks)]  # type: ignore[arg-type, union-attr]
    peer(images)
    for handle in hooks:
        handle.remove()
    return maps


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("vit_tiny_patch16_224", {}),
        ("deit_tiny_distilled_patch16_224", {}),
        ("vit_small_patch14_dinov2", {"img_size": 98}),
        ("vit_small_patch14_reg4_dinov2", {"img_size": (70, 126)}),
    ],
)
@pytest.mark.usefixtures("unfused")
@torch.inference_mode()
def test_attention_maps_are_timms(name: str, settings: dict[str, Any]) -> None:
    """Every layer, with class token, distillation token and registers, on square and other grids."""
    peer, ours = peer_and_ours(name, **settings)
    images = pictures(ours.config, batch=2)
    wanted = timm_attention(peer, images)
    found = ours.attention_maps(images)
    assert list(found) == list(wanted) == list(range(12))
    tokens = ours.config.num_tokens
    assert found[0].shape == (2, ours.config.num_heads, tokens, tokens)
    for layer, weights in wanted.items():
        assert difference(found[layer], weights) <= MAPS, layer


# --- (d) same gradients, same dropping -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({}, {}),
        (
            {"layer_scale": 0.1, "qk_norm": True, "num_registers": 2, "pool": "mean"},
            {"init_values": 0.1, "qk_norm": True, "reg_tokens": 2, "global_pool": "avg", "fc_norm": False},
        ),
    ],
    ids=["plain", "options"],
)
def test_gradients_are_timms(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    peer, mine = small_pair(ours, theirs)
    images, labels = pictures(mine.config, batch=4), torch.tensor([0, 3, 6, 1])
    for model in (peer, mine):
        model.train()
        F.cross_entropy(model(images), labels).backward()
    wanted = {name: p.grad for name, p in peer.named_parameters()}
    assert len(wanted) > 30
    for name, parameter in mine.named_parameters():
        assert wanted[name].abs().max() > 0, name
        torch.testing.assert_close(parameter.grad, wanted[name], atol=2e-6, rtol=1e-4, msg=name)


def test_drop_path_keeps_whole_samples_and_the_mean() -> None:
    """A branch is dropped for a whole sample, the kept ones are scaled by 1 / keep, and the share is the rate."""
    torch.manual_seed(0)
    samples, rate = 20_000, 0.3
    out = DropPath(rate).train()(torch.ones(samples, 2, 3))
    kept = out[:, 0, 0] != 0
    assert torch.equal(out, kept[:, None, None] * torch.full_like(out, 1 / (1 - rate)))
    sigma = (rate * (1 - rate) / samples) ** 0.5
    assert abs(kept.float().mean().item() - (1 - rate)) < 4 * sigma
    assert abs(out.mean().item() - 1) < 4 * sigma / (1 - rate)


def test_drop_path_draws_as_timms_does() -> None:
    """Same seed, same branches: a training run of ours can be held against one of timm's."""
    from timm.layers import DropPath as Peer

    x = torch.randn(64, 5, 8)
    torch.manual_seed(3)
    wanted = Peer(0.4).train()(x)
    torch.manual_seed(3)
    assert difference(DropPath(0.4).train()(x), wanted) <= 1e-6


def test_drop_path_rates_are_timms() -> None:
    peer, ours = small_pair({"drop_path_rate": 0.3}, {"drop_path_rate": 0.3})
    wanted = [getattr(block.drop_path1, "drop_prob", 0.0) for block in peer.blocks]  # type: ignore[union-attr]
    assert [block.drop_path1.rate for block in ours.blocks] == pytest.approx(wanted)
    assert [block.drop_path2.rate for block in ours.blocks] == pytest.approx([0.0, 0.15, 0.3])


def test_training_with_all_dropouts_is_timms() -> None:
    """One seed, one forward in train mode with drop path and every dropout on: the same random numbers are drawn at
    the same places."""
    ours = {"drop_path_rate": 0.5, "drop_rate": 0.3, "attn_drop_rate": 0.4, "head_drop_rate": 0.2}
    theirs = {
        "drop_path_rate": 0.5,
        "pos_drop_rate": 0.3,
        "proj_drop_rate": 0.3,
        "attn_drop_rate": 0.4,
        "drop_rate": 0.2,
    }
    peer, mine = small_pair(ours, theirs)
    images = pictures(mine.config, batch=4)
    outs = []
    for model in (peer, mine):
        torch.manual_seed(0)
        outs.append(model.train()(images))
    assert difference(outs[0], peer.eval()(images)) > 0.1
    assert difference(*outs) <= LOGITS


# --- (e) every option, in timm's words and in ours -------------------------------------------------------------------

OPTIONS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "qk_norm": ({"qk_norm": True}, {"qk_norm": True}),
    "layer_scale": ({"layer_scale": 0.5}, {"init_values": 0.5}),
    "no_qkv_bias": ({"qkv_bias": False}, {"qkv_bias": False}),
    "swiglu": (
        {"mlp": "swiglu", "mlp_dim": 96, "act": "silu"},
        {"mlp_layer": SwiGLUPacked, "mlp_ratio": 4.0, "act_layer": nn.SiLU},
    ),
    "mean": ({"pool": "mean"}, {"global_pool": "avg", "fc_norm": False}),
    "mean_no_class_token": (
        {"pool": "mean", "class_token": False},
        {"global_pool": "avg", "fc_norm": False, "class_token": False},
    ),
    "attention_pool": ({"pool": "attention"}, {"global_pool": "map"}),
    "attention_pool_no_class_token": (
        {"pool": "attention", "class_token": False, "act": "relu", "mlp_ratio": 2.0},
        {"global_pool": "map", "class_token": False, "act_layer": nn.ReLU, "mlp_ratio": 2.0},
    ),
    "non_square": ({"img_size": (24, 40)}, {"img_size": (24, 40)}),
    "non_square_patch": (
        {"img_size": (24, 40), "patch_size": (4, 8)},
        {"img_size": (24, 40), "patch_size": (4, 8)},
    ),
    "registers": ({"num_registers": 3}, {"reg_tokens": 3}),
    "registers_without_positions": (
        {"num_registers": 3, "prefix_position": False},
        {"reg_tokens": 3, "no_embed_class": True},
    ),
    "registers_only": (
        {"num_registers": 2, "class_token": False, "pool": "mean"},
        {"reg_tokens": 2, "class_token": False, "global_pool": "avg", "fc_norm": False},
    ),
    "class_token_without_position": ({"prefix_position": False}, {"no_embed_class": True}),
    "no_positions": ({"position": "none"}, {"pos_embed": "none"}),
    "mlp_ratio": ({"mlp_ratio": 2.7}, {"mlp_ratio": 2.7}),
    "channels": ({"in_chans": 5}, {"in_chans": 5}),
    "features": ({"num_classes": 0}, {"num_classes": 0}),
    "gelu_tanh": ({"act": "gelu_tanh"}, {"act_layer": "gelu_tanh"}),
    "relu": ({"act": "relu"}, {"act_layer": nn.ReLU}),
    "silu": ({"act": "silu"}, {"act_layer": nn.SiLU}),
    "quick_gelu": ({"act": "quick_gelu"}, {"act_layer": "quick_gelu"}),
    "norm_eps": ({"norm_eps": 1e-2}, {"norm_layer": partial(nn.LayerNorm, eps=1e-2)}),
}


@pytest.mark.parametrize("option", OPTIONS)
@torch.inference_mode()
def test_option_is_timms(option: str) -> None:
    peer, ours = small_pair(*OPTIONS[option])
    images = pictures(ours.config, batch=3)
    assert difference(ours(images), peer(images)) <= LOGITS


@pytest.mark.parametrize(
    ("option", "wrong"),
    [
        ("layer_scale", {"num_heads": 6}),
        ("swiglu", {"act": "gelu"}),
        ("gelu_tanh", {"act": "gelu"}),
        ("norm_eps", {"norm_eps": 1e-6}),
        ("mean", {"pool": "cls"}),
        ("registers", {"pool": "mean"}),
        ("non_square", {"norm_order": "post"}),
    ],
)
@torch.inference_mode()
def test_these_weights_would_show_a_wrong_network(option: str, wrong: dict[str, Any]) -> None:
    """The comparison can fail: the same weights in a network with one wrong setting give another answer."""
    peer, ours = small_pair(*OPTIONS[option])
    images = pictures(ours.config, batch=3)
    other = twin_of(peer, updated(ours.config, **wrong))
    assert difference(other(images), peer(images)) > 10 * LOGITS


@pytest.mark.parametrize("grid", [(3, 3), (2, 5)])
def test_relative_index_is_timms(grid: tuple[int, int]) -> None:
    """BEiT's table of offsets, with its three extra rows for the class token."""
    assert torch.equal(relative_index(grid, 1), gen_relative_position_index(grid, class_token=True))


# --- (f) other image sizes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("antialias", [True, False])
@pytest.mark.parametrize("num_prefix", [0, 1, 2, 5])
@pytest.mark.parametrize(
    ("old", "new"), [((14, 14), (24, 24)), ((14, 14), (7, 7)), ((6, 10), (9, 4)), ((4, 6), (6, 4)), ((5, 5), (5, 5))]
)
def test_resampled_positions_are_timms(
    old: tuple[int, int], new: tuple[int, int], num_prefix: int, antialias: bool
) -> None:
    table = torch.randn(1, num_prefix + old[0] * old[1], 8)
    wanted = resample_abs_pos_embed(
        table, new_size=list(new), old_size=list(old), num_prefix_tokens=num_prefix, antialias=antialias
    )
    found = resample_positions(table, old, new, num_prefix=num_prefix, antialias=antialias)
    assert difference(found, wanted) <= 1e-5
    assert torch.equal(found[:, :num_prefix], table[:, :num_prefix])


@pytest.mark.parametrize("size", [(48, 48), (16, 40), (24, 24)])
@pytest.mark.parametrize("option", ["mean", "registers", "registers_without_positions", "mean_no_class_token"])
@torch.inference_mode()
def test_another_input_size_is_timms(option: str, size: tuple[int, int]) -> None:
    peer, ours = small_pair(*OPTIONS[option])
    peer.set_input_size(size)
    ours.set_input_size(size)
    images = pictures(ours.config, batch=2)
    assert images.shape[2:] == size
    assert difference(ours(images), peer(images)) <= LOGITS


@torch.inference_mode()
def test_distilled_at_another_size_is_timms() -> None:
    peer, ours = peer_and_ours("deit_tiny_distilled_patch16_224")
    peer.set_input_size((96, 160))
    ours.set_input_size((96, 160))
    images = pictures(ours.config, batch=2)
    assert difference(ours(images), peer(images)) <= LOGITS
