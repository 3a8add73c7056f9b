"""Our ViT, MAE and SimMIM are transformers': same numbers, attention and masks under large random weights.

transformers keeps q, k and v apart and has a LayerNorm epsilon of 1e-12; its names are mapped here.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from random_weights import fill_with_large_random_weights
from torch import Tensor, nn

from vitscope.models.build import build_model
from vitscope.models.config import MAEConfig, SimMIMConfig, ViTConfig
from vitscope.models.mae import MAE
from vitscope.models.simmim import SimMIM
from vitscope.models.variants import model_config
from vitscope.models.vit import ViT

OUTPUTS = 2e-5
MAPS = 1e-5
TABLE = 1e-6

Weights = dict[str, Tensor]


# --- their names -> ours ------------------------------------------------------------------------------------

INSIDE_A_BLOCK = {
    "layernorm_before": "norm1",
    "attention.o_proj": "attn.proj",
    "layernorm_after": "norm2",
    "mlp.fc1": "mlp.fc1",
    "mlp.fc2": "mlp.fc2",
}


def block_weights(theirs: Weights, layer: str, block: str) -> Weights:
    ours = {
        f"{block}.{new}.{leaf}": theirs[f"{layer}.{old}.{leaf}"]
        for old, new in INSIDE_A_BLOCK.items()
        for leaf in ("weight", "bias")
    }
    for leaf in ("weight", "bias"):
        if f"{layer}.attention.q_proj.{leaf}" in theirs:
            parts = [theirs[f"{layer}.attention.{part}_proj.{leaf}"] for part in "qkv"]
            ours[f"{block}.attn.qkv.{leaf}"] = torch.cat(parts)
    return ours


def encoder_weights(theirs: Weights, depth: int, *, learned: bool) -> Weights:
    ours = {
        "cls_token": theirs["vit.embeddings.cls_token"],
        "patch_embed.proj.weight": theirs["vit.embeddings.patch_embeddings.projection.weight"],
        "patch_embed.proj.bias": theirs["vit.embeddings.patch_embeddings.projection.bias"],
        "norm.weight": theirs["vit.layernorm.weight"],
        "norm.bias": theirs["vit.layernorm.bias"],
    }
    if learned:
        ours["pos_embed"] = theirs["vit.embeddings.position_embeddings"]
    for i in range(depth):
        ours |= block_weights(theirs, f"vit.layers.{i}", f"blocks.{i}")
    return ours


def inside_encoder(weights: Weights) -> Weights:
    return {f"encoder.{key}": value for key, value in weights.items()}


# --- pairs --------------------------------------------------------------------------------------------------

ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_tanh": "gelu_new",
    "relu": "relu",
    "silu": "silu",
    "quick_gelu": "quick_gelu",
}


def in_their_words(config: ViTConfig) -> dict[str, Any]:
    return {
        "image_size": config.img_size,
        "patch_size": config.patch_size,
        "num_channels": config.in_chans,
        "hidden_size": config.embed_dim,
        "num_hidden_layers": config.depth,
        "num_attention_heads": config.num_heads,
        "intermediate_size": config.block_mlp_dims[0],
        "hidden_act": ACTIVATIONS[config.activation],
        "qkv_bias": config.qkv_bias,
        "layer_norm_eps": config.norm_eps,
        "attn_implementation": "eager",
    }


def small_vit(**settings: Any) -> ViTConfig:
    plain = {"img_size": 32, "patch_size": 8, "embed_dim": 48, "depth": 3, "num_heads": 4, "norm_eps": 1e-12}
    return ViTConfig(**{**plain, **settings})


def filled(peer: Any, seed: int = 0) -> Any:
    fill_with_large_random_weights(peer, seed=seed)
    return peer.eval()


def classifiers(config: ViTConfig) -> tuple[Any, ViT]:
    words = in_their_words(config)
    peer = filled(
        transformers.ViTForImageClassification(transformers.ViTConfig(num_labels=config.num_classes, **words))
    )
    theirs = peer.state_dict()
    ours = ViT(config).eval()
    head = {f"head.{leaf}": theirs[f"classifier.{leaf}"] for leaf in ("weight", "bias")}
    ours.load_state_dict(encoder_weights(theirs, config.depth, learned=True) | head, strict=True)
    return peer, ours


def maes(encoder: dict[str, Any], **settings: Any) -> tuple[Any, MAE]:
    inside = small_vit(num_classes=0, **{"position": "sincos", **encoder})
    decoder = {"decoder_embed_dim": 24, "decoder_depth": 2, "decoder_num_heads": 3}
    config = MAEConfig(**{"encoder": inside, **decoder, **settings})
    peer = transformers.ViTMAEForPreTraining(
        transformers.ViTMAEConfig(
            decoder_hidden_size=config.decoder_embed_dim,
            decoder_num_hidden_layers=config.decoder_depth,
            decoder_num_attention_heads=config.decoder_num_heads,
            decoder_intermediate_size=int(config.decoder_embed_dim * inside.mlp_ratio),
            mask_ratio=config.mask_ratio,
            norm_pix_loss=config.normalize_pixels,
            **in_their_words(inside),
        )
    )
    restore_fixed_positions(peer)
    filled(peer)  # leaves both tables alone: they are not trained
    if inside.position == "learned":
        nn.init.normal_(peer.vit.embeddings.position_embeddings, std=0.2)
    theirs = peer.state_dict()
    weights = inside_encoder(encoder_weights(theirs, inside.depth, learned=inside.position == "learned"))
    weights["mask_token"] = theirs["decoder.mask_token"]
    for part in ("decoder_embed", "decoder_norm", "decoder_pred"):
        weights |= {f"{part}.{leaf}": theirs[f"decoder.{part}.{leaf}"] for leaf in ("weight", "bias")}
    for i in range(config.decoder_depth):
        weights |= block_weights(theirs, f"decoder.decoder_layers.{i}", f"decoder_blocks.{i}")
    ours = MAE(config).eval()
    ours.load_state_dict(weights, strict=True)
    return peer, ours


@torch.no_grad()
def restore_fixed_positions(peer: Any) -> None:
    """A fresh ViTMAE of transformers 5.22 has zeros in both tables: its initialisation skips the encoder's
    and overwrites the decoder's; only published checkpoints carry them. Here transformers' own function makes
    them again, with the two halves swapped as its code does for those checkpoints."""
    from transformers.models.vit_mae.modeling_vit_mae import build_2d_sinusoidal_position_embedding

    side = peer.config.image_size // peer.config.patch_size
    for table in (peer.vit.embeddings.position_embeddings, peer.decoder.decoder_pos_embed):
        canonical = build_2d_sinusoidal_position_embedding(side, side, table.shape[-1], cls_token=True)
        down, across = canonical.chunk(2, dim=-1)
        table.copy_(torch.cat([across, down], dim=-1)[None])


def simmims(encoder: dict[str, Any]) -> tuple[Any, SimMIM]:
    config = SimMIMConfig(encoder=small_vit(num_classes=0, **encoder))
    words = in_their_words(config.encoder)
    stride = config.encoder.patch_size
    peer = filled(transformers.ViTForMaskedImageModeling(transformers.ViTConfig(encoder_stride=stride, **words)))
    theirs = peer.state_dict()
    weights = inside_encoder(encoder_weights(theirs, config.encoder.depth, learned=True))
    weights["mask_token"] = theirs["vit.embeddings.mask_token"]
    weights |= {f"decoder.0.{leaf}": theirs[f"decoder.0.{leaf}"] for leaf in ("weight", "bias")}
    ours = SimMIM(config).eval()
    ours.load_state_dict(weights, strict=True)
    return peer, ours


def pictures(config: ViTConfig, batch: int = 3, seed: int = 1) -> Tensor:
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(batch, config.in_chans, config.img_size, config.img_size, generator=rng)  # type: ignore[arg-type]


def difference(left: Tensor, right: Tensor) -> float:
    assert left.shape == right.shape
    return (left - right).abs().max().item()


def report(what: str, **worst: float) -> None:
    print(f"{what}: " + ", ".join(f"{name} {value:.1e}" for name, value in worst.items()))


# --- the classifier -----------------------------------------------------------------------------------------

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "no_qkv_bias": {"qkv_bias": False},
    "gelu_new": {"act": "gelu_tanh"},
    "quick_gelu": {"act": "quick_gelu"},
    "relu": {"act": "relu"},
    "small_patches_one_channel": {"img_size": 28, "patch_size": 4, "in_chans": 1},
    "narrow_mlp": {"mlp_dim": 40},
    "eps": {"norm_eps": 1e-2},
}


@pytest.mark.parametrize("option", OPTIONS)
@torch.inference_mode()
def test_classifier_and_attention_are_transformers(option: str) -> None:
    peer, ours = classifiers(small_vit(num_classes=7, **OPTIONS[option]))
    images = pictures(ours.config)
    wanted = peer(images, output_attentions=True, output_hidden_states=True)
    logits = ours(images)
    assert logits.shape == (3, 7)
    assert wanted.logits.std() > 0.3, "the weights are too small to show an error"
    maps = ours.attention_maps(images)
    assert len(wanted.attentions) == len(maps) == 3
    worst_map = max(difference(maps[i], weights) for i, weights in enumerate(wanted.attentions))
    report(option, logits=difference(logits, wanted.logits), maps=worst_map)
    assert difference(logits, wanted.logits) <= OUTPUTS
    assert worst_map <= MAPS
    for i, tokens in ours.forward_intermediates(images).items():
        assert difference(tokens, wanted.hidden_states[i + 1]) <= 1e-4, i  # tokens are not normalised here


@torch.inference_mode()
def test_these_weights_would_show_a_wrong_network() -> None:
    """The comparison can fail: another activation, epsilon or number of heads gives another answer."""
    config = small_vit(num_classes=7, norm_eps=1e-2)
    peer, ours = classifiers(config)
    images = pictures(config)
    for wrong in ({"act": "gelu_tanh"}, {"norm_eps": 1e-6}, {"num_heads": 8}):
        other = ViT(small_vit(num_classes=7, **{"norm_eps": 1e-2, **wrong})).eval()
        other.load_state_dict(ours.state_dict())
        assert difference(other(images), peer(images).logits) > 5 * OUTPUTS, wrong


# --- MAE ----------------------------------------------------------------------------------------------------

MAES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}),
    "raw_pixels": ({}, {"normalize_pixels": False}),
    "options": (
        {"qkv_bias": False, "act": "gelu_tanh", "mlp_ratio": 2.0, "in_chans": 1},
        {"mask_ratio": 0.6},
    ),
    "more_patches": ({"img_size": 40, "patch_size": 4}, {}),
    "learned": ({"position": "learned"}, {}),
}


@pytest.mark.parametrize("case", MAES)
@torch.inference_mode()
def test_mae_is_transformers(case: str) -> None:
    encoder, settings = MAES[case]
    peer, ours = maes(encoder, **settings)
    images = pictures(ours.config.encoder)
    noise = torch.rand(3, ours.config.encoder.num_patches, generator=torch.Generator().manual_seed(2))
    wanted = peer(images, noise=noise)
    loss, prediction, mask = ours(images, noise=noise)
    assert wanted.logits.std() > 0.3, "the weights are too small to show an error"
    worst = {"loss": difference(loss, wanted.loss), "prediction": difference(prediction, wanted.logits)}
    report(f"mae {case}", **worst)
    assert max(worst.values()) <= OUTPUTS
    assert torch.equal(mask.float(), wanted.mask)
    latent = ours.encode_visible(images, noise.argsort(dim=1)[:, : int((~mask[0]).sum())])
    assert difference(latent, peer.vit(images, noise=noise).last_hidden_state) <= OUTPUTS


def test_mae_base_counts_what_transformers_trains() -> None:
    """Full size: transformers' default config is MAE's ViT-Base; its two fixed tables are no parameters here."""
    with torch.device("meta"):
        peer = transformers.ViTMAEForPreTraining(transformers.ViTMAEConfig())
        ours = build_model(model_config("mae_vit_base_patch16"))
    trained = sum(parameter.numel() for parameter in peer.parameters() if parameter.requires_grad)
    assert sum(parameter.numel() for parameter in ours.parameters()) == trained == 111_655_680


@pytest.mark.parametrize("case", ["plain", "more_patches"])
def test_fixed_positions_are_transformers(case: str) -> None:
    """Tables as transformers makes them; the class token's row is zero there and absent here."""
    encoder, settings = MAES[case]
    peer, ours = maes(encoder, **settings)
    tables = [
        (peer.vit.embeddings.position_embeddings, ours.encoder.sincos),
        (peer.decoder.decoder_pos_embed, ours.decoder_sincos),
    ]
    for wanted, found in tables:
        assert not wanted.requires_grad
        assert wanted.abs().max() > 0.9
        assert torch.equal(wanted[:, 0], torch.zeros_like(wanted[:, 0]))
        assert found is not None
        assert difference(found, wanted[:, 1:]) <= TABLE


@torch.inference_mode()
def test_reconstructed_picture_is_joined_as_transformers_does() -> None:
    peer, ours = maes({}, normalize_pixels=False)
    images = pictures(ours.config.encoder)
    noise = torch.rand(3, 16, generator=torch.Generator().manual_seed(2))
    theirs = peer(images, noise=noise)
    patches = torch.where(theirs.mask[..., None] == 1, theirs.logits, peer.patchify(images))
    assert difference(ours.reconstruct(images, noise), peer.unpatchify(patches)) <= OUTPUTS


def test_mae_gradients_are_transformers() -> None:
    peer, ours = maes({})
    images = pictures(ours.config.encoder)
    noise = torch.rand(3, 16, generator=torch.Generator().manual_seed(2))
    peer(images, noise=noise).loss.backward()
    ours(images, noise=noise).loss.backward()
    pairs: list[tuple[nn.Parameter, nn.Parameter]] = [
        (ours.mask_token, peer.decoder.mask_token),
        (ours.decoder_pred.weight, peer.decoder.decoder_pred.weight),
        (ours.encoder.patch_embed.proj.weight, peer.vit.embeddings.patch_embeddings.projection.weight),
    ]
    for found, wanted in pairs:
        assert wanted.grad is not None
        assert wanted.grad.abs().max() > 1e-4
        torch.testing.assert_close(found.grad, wanted.grad, atol=2e-6, rtol=1e-4)


# --- SimMIM -------------------------------------------------------------------------------------------------

SIMMIMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "options": {"qkv_bias": False, "act": "gelu_tanh", "mlp_ratio": 2.0, "in_chans": 1},
    "more_patches": {"img_size": 40, "patch_size": 4},
}


@pytest.mark.parametrize("case", SIMMIMS)
@torch.inference_mode()
def test_simmim_is_transformers(case: str) -> None:
    peer, ours = simmims(SIMMIMS[case])
    images = pictures(ours.config.encoder)
    mask = torch.rand(3, ours.config.encoder.num_patches, generator=torch.Generator().manual_seed(2)) < 0.6
    wanted = peer(images, bool_masked_pos=mask)
    loss, picture, returned = ours(images, mask)
    assert wanted.reconstruction.std() > 0.3, "the weights are too small to show an error"
    worst = {"loss": difference(loss, wanted.loss), "picture": difference(picture, wanted.reconstruction)}
    report(f"simmim {case}", **worst)
    assert max(worst.values()) <= OUTPUTS
    assert torch.equal(returned, mask)
