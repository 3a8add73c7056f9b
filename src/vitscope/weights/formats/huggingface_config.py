"""Hugging Face's config.json: what it says of a model in our words, and ours in its."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from vitscope.core.config import from_dict, shortened, to_dict, updated
from vitscope.core.errors import ConfigError, expected
from vitscope.core.suggest import did_you_mean
from vitscope.models.config import MAEConfig, ModelConfig, SimMIMConfig, Size, ViTConfig, pair
from vitscope.weights.formats.damaged import refusing_damage

MODEL_TYPES = ("vit", "deit", "vit_mae", "dinov2", "dinov2_with_registers")
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "quick_gelu": "quick_gelu",
}
"""Their word -> ours."""
IN_THEIR_WORDS = {
    "gelu": "gelu",
    "gelu_tanh": "gelu_pytorch_tanh",
    "relu": "relu",
    "silu": "silu",
    "quick_gelu": "quick_gelu",
}
LARGEST_RATIO = 64
"""How wide an MLP is looked for, as a multiple of the width."""


# --- from theirs ------------------------------------------------------------------------------------------------


def read_config(described: dict[str, Any], tensors: Collection[str], *, sincos: bool, where: str) -> ModelConfig:
    """The model behind a config.json and the names of its tensors. `sincos`: whether its positions are the fixed ones.

    What a key that is not there means is what transformers takes for it.
    """
    kind = described.get("model_type")
    if kind not in MODEL_TYPES:
        raise ConfigError(
            expected("model_type", f"one of {', '.join(MODEL_TYPES)}", shortened(kind)),
            where=where,
            fix=did_you_mean(str(kind), MODEL_TYPES) or "of other models of Hugging Face, nothing can be loaded",
        )
    settings = _backbone(described, dino="dinov2" in kind, where=where)
    if kind == "dinov2_with_registers":
        settings |= {"num_registers": described.get("num_register_tokens", 4), "prefix_position": False}
        settings["patch_size"] = described.get("patch_size", 16)
    if kind == "deit":
        settings |= _deit(described, tensors)
    settings["position"] = "sincos" if sincos else "learned"
    if kind == "vit_mae":
        settings["init"] = "xavier"
    if kind == "vit_mae" and "decoder.decoder_embed.weight" in tensors:
        return _mae(settings, described, where)
    if "decoder.0.weight" in tensors:
        return _simmim(settings, described, where)
    return _vit(settings, where)


def _vit(settings: dict[str, Any], where: str) -> ViTConfig:
    """What needs no saying is left unsaid, as in the settings of our own models."""
    config = from_dict(ViTConfig, settings, where=where)
    if config.act == updated(config, act=None).activation:
        config = updated(config, act=None)
    if config.mlp_dim == int(config.embed_dim * config.mlp_ratio):
        config = updated(config, mlp_dim=None)
    return config


def _backbone(described: dict[str, Any], *, dino: bool, where: str) -> dict[str, Any]:
    """What all of them say."""
    act = described.get("hidden_act", "gelu")
    if act not in tuple(ACTIVATIONS):
        raise ConfigError(
            expected("hidden_act", f"one of {', '.join(ACTIVATIONS)}", shortened(act)),
            where=where,
            fix=did_you_mean(str(act), ACTIVATIONS) or "no model here computes that activation",
        )
    settings = {
        "img_size": _size(described.get("image_size", 224)),
        "patch_size": _size(described.get("patch_size", 14 if dino else 16)),
        "in_chans": described.get("num_channels", 3),
        "num_classes": 0,  # whether there is a head, the weights say
        "embed_dim": described.get("hidden_size", 768),
        "depth": described.get("num_hidden_layers", 12),
        "num_heads": described.get("num_attention_heads", 12),
        "head_dim": described.get("head_dim"),
        "act": ACTIVATIONS[act],
        "qkv_bias": described.get("qkv_bias", True),
        "norm_eps": described.get("layer_norm_eps", 1e-6 if dino else 1e-12),
        "drop_rate": described.get("hidden_dropout_prob", 0.0),
        "attn_drop_rate": described.get("attention_probs_dropout_prob", 0.0),
        "drop_path_rate": described.get("drop_path_rate", 0.0),
    }
    if not dino:
        return {**settings, "mlp_dim": described.get("intermediate_size", 3072)}
    gated, ratio = described.get("use_swiglu_ffn", False), described.get("mlp_ratio", 4)
    settings["layer_scale"] = described.get("layerscale_value", 1.0)
    if gated:
        settings |= {"mlp": "swiglu", "act": "silu"}  # whatever hidden_act says
    with refusing_damage(where, "mlp_ratio or hidden_size"):
        return {**settings, "mlp_dim": _neurons(settings["embed_dim"], ratio, gated=gated)}


def _neurons(width: int, ratio: float, *, gated: bool) -> int:
    """Of DINOv2's MLP; the gated one takes two thirds, rounded up to a multiple of 8."""
    neurons = int(width * ratio)
    return (int(neurons * 2 / 3) + 7) // 8 * 8 if gated else neurons


def _deit(described: dict[str, Any], tensors: Collection[str]) -> dict[str, Any]:
    """The second token has a head of its own, or is there for the others to attend to, as a register is."""
    if "distillation_classifier.weight" in tensors:
        return {"distilled": True}
    with_one_head = "DeiTForImageClassification" in (described.get("architectures") or ())
    if with_one_head or "classifier.weight" in tensors or "decoder.0.weight" in tensors:
        return {"num_registers": 1}
    return {"distilled": True}


def _mae(settings: dict[str, Any], described: dict[str, Any], where: str) -> MAEConfig:
    width, neurons = described.get("decoder_hidden_size", 512), described.get("decoder_intermediate_size", 2048)
    with refusing_damage(where, "decoder_hidden_size or decoder_intermediate_size"):
        settings["mlp_ratio"] = exact_ratio(neurons, width)
        if not isinstance(neurons, int) or neurons < 1:
            raise ConfigError(expected("decoder_intermediate_size", "a positive integer", shortened(neurons)))
    encoder = _vit(settings, where)
    masked = {
        "decoder_embed_dim": width,
        "decoder_depth": described.get("decoder_num_hidden_layers", 8),
        "decoder_num_heads": described.get("decoder_num_attention_heads", 16),
        "mask_ratio": described.get("mask_ratio", 0.75),
        "normalize_pixels": described.get("norm_pix_loss", False),
    }
    return from_dict(MAEConfig, {"encoder": to_dict(encoder), **masked}, where=where)


def _simmim(settings: dict[str, Any], described: dict[str, Any], where: str) -> SimMIMConfig:
    stride, encoder = described.get("encoder_stride", 16), _vit(settings, where)
    if pair(encoder.patch_size) != (stride, stride):
        raise ConfigError(
            expected("encoder_stride", f"the patch_size {encoder.patch_size}", shortened(stride)),
            where=where,
            fix="a decoder here paints each patch at its own size",
        )
    masked = {"encoder": to_dict(encoder), "mask_ratio": described.get("mask_ratio", 0.6)}
    return from_dict(SimMIMConfig, masked, where=where)


def exact_ratio(neurons: int, width: int) -> float:
    """What to multiply `width` by to get `neurons` after rounding down."""
    ratio = neurons / width
    return ratio if int(width * ratio) == neurons else math.nextafter(ratio, math.inf)


def _size(value: Any) -> Any:
    """A square by its side."""
    is_square = isinstance(value, list | tuple) and len(value) == 2 and value[0] == value[1]
    return value[0] if is_square else value


# --- to theirs --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TheirClass:
    """Which of their classes holds a model."""

    name: str
    model_type: str
    backbone: str = ""
    """What stands before the backbone's names."""


def class_for(config: ModelConfig, *, where: str) -> TheirClass:
    """The class of transformers that computes what a model of this config does. None does: an error says why."""
    if not isinstance(config, ViTConfig | MAEConfig | SimMIMConfig):
        raise ConfigError(
            expected("model.family", "'vit', 'mae' or 'simmim' for Hugging Face", f"'{config.family}'"),
            where=where,
            fix="save it in our own format, or in timm's",
        )
    chosen = _chosen(config)
    vit = config if isinstance(config, ViTConfig) else config.encoder
    reasons = [*_never_held(vit), *_not_held_by(chosen, config, vit)]
    if reasons:
        raise ConfigError(
            f"Hugging Face's {chosen.name} cannot hold this model: {'; '.join(reasons)}",
            where=where,
            fix="save it in timm's format, which holds more (--to timm), or in our own, which holds everything",
        )
    return chosen


def _chosen(config: ViTConfig | MAEConfig | SimMIMConfig) -> TheirClass:
    if isinstance(config, MAEConfig):
        return TheirClass("ViTMAEForPreTraining", "vit_mae", "vit.")
    if isinstance(config, SimMIMConfig):
        kind = ("ViT", "vit") if not config.encoder.num_registers else ("DeiT", "deit")
        return TheirClass(f"{kind[0]}ForMaskedImageModeling", kind[1], f"{kind[1]}.")
    if config.layer_scale is not None:
        if config.num_registers:
            return TheirClass("Dinov2WithRegistersModel", "dinov2_with_registers")
        return TheirClass("Dinov2Model", "dinov2")
    if config.distilled:
        if not config.num_classes:
            return TheirClass("DeiTModel", "deit")
        return TheirClass("DeiTForImageClassificationWithTeacher", "deit", "deit.")
    if config.num_registers:
        return TheirClass("DeiTForImageClassification", "deit", "deit.")
    if config.num_classes:
        return TheirClass("ViTForImageClassification", "vit", "vit.")
    # Not ViTMAEModel, fixed positions or not: it shuffles the patches even where it hides none.
    return TheirClass("ViTModel", "vit")


def _never_held(vit: ViTConfig) -> list[str]:
    """What none of their classes computes."""
    reasons = {
        "it has no class token": not vit.class_token,
        "norm_order is 'post'": vit.norm_order == "post",
        "q and k are normalised (qk_norm)": vit.qk_norm,
        f"positions are of the kind '{vit.position}'": vit.position in ("rope", "relative"),
        "the blocks differ in their heads": len(set(vit.block_heads)) > 1,
        "blocks have lost all their heads": 0 in vit.block_heads,
        "the blocks differ in their neurons": len(set(vit.block_mlp_dims)) > 1,
        "blocks have lost all their neurons": 0 in vit.block_mlp_dims,
    }
    return [reason for reason, holds in reasons.items() if holds]


def _not_held_by(chosen: TheirClass, config: ViTConfig | MAEConfig | SimMIMConfig, vit: ViTConfig) -> list[str]:
    dino, deit = "dinov2" in chosen.model_type, chosen.model_type == "deit"
    squares = pair(vit.img_size)[0] == pair(vit.img_size)[1] and pair(vit.patch_size)[0] == pair(vit.patch_size)[1]
    needs_squares = dino or chosen.model_type == "vit_mae" or isinstance(config, SimMIMConfig)
    without_rows = vit.position == "learned" and not vit.prefix_position
    reasons = {
        f"pool is '{vit.pool}', not 'cls'": isinstance(config, ViTConfig) and vit.pool != "cls",
        "layer scale is for models without a head there": dino and vit.num_classes > 0,
        "layer scale is not for masked models there": not dino and vit.layer_scale is not None,
        "a gated MLP needs layer scale there": vit.mlp == "swiglu" and not dino,
        "a gated MLP is gated by silu there": vit.mlp == "swiglu" and vit.activation != "silu",
        f"the MLP's {vit.block_mlp_dims[0]} neurons follow from no whole mlp_ratio": dino and _ratio(vit) is None,
        "a distillation token stands beside layer scale": dino and vit.distilled,
        "registers stand beside a distillation token": vit.distilled and vit.num_registers > 0,
        "registers need layer scale there": not dino and vit.num_registers > (1 if deit else 0),
        "registers have rows of the position table": dino and vit.num_registers > 0 and not without_rows,
        "the second token has no position": deit and without_rows,
        "height and width differ": needs_squares and not squares,
    }
    return [reason for reason, holds in reasons.items() if holds]


def _ratio(vit: ViTConfig) -> int | None:
    """The whole number that gives the MLP's neurons in DINOv2."""
    gated, wanted = vit.mlp == "swiglu", vit.block_mlp_dims[0]
    ratios = range(1, LARGEST_RATIO + 1)
    return next((ratio for ratio in ratios if _neurons(vit.embed_dim, ratio, gated=gated) == wanted), None)


def written_config(config: ModelConfig, chosen: TheirClass, *, labels: list[str], dtype: str) -> dict[str, Any]:
    """The config.json of a model that `chosen` holds."""
    vit: ViTConfig = config if isinstance(config, ViTConfig) else config.encoder  # pyright: ignore[reportAttributeAccessIssue]
    described: dict[str, Any] = {
        "architectures": [chosen.name],
        "model_type": chosen.model_type,
        "torch_dtype": dtype,
        "image_size": _sides(vit.img_size),
        "patch_size": _sides(vit.patch_size),
        "num_channels": vit.in_chans,
        "hidden_size": vit.embed_dim,
        "num_hidden_layers": vit.depth,
        "num_attention_heads": vit.block_heads[0],
        "hidden_act": IN_THEIR_WORDS[vit.activation],
        "qkv_bias": vit.qkv_bias,
        "layer_norm_eps": vit.norm_eps,
        "hidden_dropout_prob": vit.drop_rate,
        "attention_probs_dropout_prob": vit.attn_drop_rate,
    }
    if vit.dim_per_head * vit.block_heads[0] != vit.embed_dim:
        described["head_dim"] = vit.dim_per_head
    if vit.drop_path_rate:
        described["drop_path_rate"] = vit.drop_path_rate
    if "dinov2" in chosen.model_type:
        described |= {"mlp_ratio": _ratio(vit), "use_swiglu_ffn": vit.mlp == "swiglu"}
        described["layerscale_value"] = vit.layer_scale
    else:
        described["intermediate_size"] = vit.block_mlp_dims[0]
    if vit.num_registers and "dinov2" in chosen.model_type:
        described["num_register_tokens"] = vit.num_registers
    if isinstance(config, MAEConfig):
        described |= _written_decoder(config, vit)
    if isinstance(config, SimMIMConfig):
        described |= {"encoder_stride": pair(vit.patch_size)[0], "mask_ratio": config.mask_ratio}
    if "ForImageClassification" in chosen.name:
        described["id2label"] = {str(number): label for number, label in enumerate(labels)}
        described["label2id"] = {label: number for number, label in enumerate(labels)}
    return described


def _written_decoder(config: MAEConfig, vit: ViTConfig) -> dict[str, Any]:
    return {
        "decoder_hidden_size": config.decoder_embed_dim,
        "decoder_num_hidden_layers": config.decoder_depth,
        "decoder_num_attention_heads": config.decoder_num_heads,
        "decoder_intermediate_size": int(config.decoder_embed_dim * vit.mlp_ratio),
        "mask_ratio": config.mask_ratio,
        "norm_pix_loss": config.normalize_pixels,
    }


def _sides(size: Size) -> int | list[int]:
    height, width = pair(size)
    return height if height == width else [height, width]
