"""A config of ours in timm's words: the nearest architecture, and the arguments that make it this one.

timm has no words for some settings, which is refused, and names for some values alone: SwiGLU is found only in
DINOv2's giant, LayerNorm's eps 1e-5 only in CLIP's towers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from vitscope.core.config import updated
from vitscope.core.errors import ConfigError
from vitscope.models.config import MAEConfig, ModelConfig, ResNetConfig, SimMIMConfig, SwinConfig, ViTConfig
from vitscope.weights.formats.timm_arguments import ARCHITECTURES, POOLS, Architecture, mlp_ratio

ANY_LAYER_SCALE = 1e-5
"""timm takes 0 for none. How LayerScale began matters no more once weights are loaded."""


@dataclass(frozen=True)
class Spelling:
    """How timm is asked for a model."""

    architecture: str
    arguments: dict[str, Any]
    norm_eps: float | None
    """What its LayerNorms will have; None where there are none."""


def timms_config(config: ModelConfig) -> ModelConfig:
    """What of `config` timm can be asked for: of a masked model its encoder, and fixed positions as learned ones."""
    if isinstance(config, MAEConfig | SimMIMConfig):
        config = config.encoder
    if isinstance(config, ViTConfig) and config.position == "sincos":
        return updated(config, position="learned", prefix_position=True)
    return config


def spelled(config: ModelConfig) -> Spelling:
    """Refused, with all that stands in the way, where timm has no such model."""
    config = timms_config(config)
    lost = _unheld(config)
    if lost:
        raise ConfigError(
            f"timm has no model with {'; '.join(lost)}",
            where="writing for timm",
            fix="save it in vitscope's own format",
        )
    rows = {name: row for name, row in ARCHITECTURES.items() if _is_like(row, config)}
    wanted = _arguments(config)
    options = [(name, _differing(wanted, row)) for name, row in rows.items()]
    name, arguments = min(options, key=lambda option: (_eps_distance(rows[option[0]], config), len(option[1])))
    eps = getattr(rows[name].config, "norm_eps", None)
    return Spelling(name, arguments, eps)


def _is_like(row: Architecture, config: ModelConfig) -> bool:
    """Whether arguments can make it the other: they reach neither the form of blocks nor a second token."""
    if type(row.config) is not type(config):
        return False
    fixed = ("distilled", "mlp") if isinstance(config, ViTConfig) else ("block",)
    return all(getattr(row.config, key, None) == getattr(config, key, None) for key in fixed)


def _eps_distance(row: Architecture, config: ModelConfig) -> float:
    if not isinstance(row.config, ViTConfig) or not isinstance(config, ViTConfig):
        return 0.0
    return round(abs(math.log10(row.config.norm_eps) - math.log10(config.norm_eps or 1e-30)), 6)


def _differing(wanted: dict[str, Any], row: Architecture) -> dict[str, Any]:
    """The arguments that do not say what the architecture says anyway."""
    said = _arguments(row.config)
    arguments = {key: value for key, value in wanted.items() if value != said[key]}
    if wanted.get("global_pool") == "avg":
        arguments["fc_norm"] = False  # the norm before the mean, as here
    if row.pre_norm:
        arguments |= {"pre_norm": False, "num_classes": wanted["num_classes"]}  # its own classes are no rule
    return arguments


def _arguments(config: ModelConfig) -> dict[str, Any]:
    """All of it in timm's words."""
    if isinstance(config, ViTConfig):
        return _vit_arguments(config)
    names = ("in_chans", "num_classes")
    if isinstance(config, SwinConfig):
        names += ("img_size", "patch_size", "embed_dim", "depths", "num_heads", "window_size", "mlp_ratio", "qkv_bias")
        names += ("attn_drop_rate", "drop_path_rate")
    own = {name: getattr(config, name) for name in names}
    if isinstance(config, SwinConfig):
        return {**own, "drop_rate": config.head_drop_rate, "proj_drop_rate": config.drop_rate}
    if isinstance(config, ResNetConfig):
        return {**own, "drop_rate": config.head_drop_rate, "layers": config.depths}
    return own


def _vit_arguments(config: ViTConfig) -> dict[str, Any]:
    names = ("img_size", "patch_size", "in_chans", "num_classes", "embed_dim", "depth", "qkv_bias", "qk_norm")
    names += ("class_token", "attn_drop_rate", "drop_path_rate")
    scale = config.layer_scale
    return {
        **{name: getattr(config, name) for name in names},
        "num_heads": config.block_heads[0],
        "mlp_ratio": mlp_ratio(config),
        "act_layer": config.activation,
        "init_values": 0.0 if scale is None else scale or ANY_LAYER_SCALE,
        "reg_tokens": config.num_registers,
        "no_embed_class": not config.prefix_position,
        "pos_embed": "learn" if config.position == "learned" else "none",
        "global_pool": POOLS[config.pool],
        "drop_rate": config.head_drop_rate,
        "pos_drop_rate": config.drop_rate,
        "proj_drop_rate": config.drop_rate,
    }


# --- what timm has no words for ---------------------------------------------------------------------------------


def _unheld(config: ModelConfig) -> list[str]:
    """What stands in the way, a clause each."""
    if isinstance(config, ViTConfig):
        return [*_unheld_in_blocks(config), *_unheld_around(config)]
    if isinstance(config, ResNetConfig):
        return _chosen(
            (config.stem != "imagenet", f"stem='{config.stem}'"),
            (config.stem_width != 64, f"stem_width={config.stem_width}"),
            (len(config.depths) != 4, f"{len(config.depths)} stages"),
            (
                config.block_widths != updated(config, inner_widths=None).block_widths,
                "channels inside the blocks that are not the stage's (inner_widths)",
            ),
        )
    return [] if isinstance(config, SwinConfig) else [f"the layers of family '{config.family}'"]


def _unheld_in_blocks(config: ViTConfig) -> list[str]:
    return _chosen(
        (config.norm_order != "pre", f"norm_order='{config.norm_order}'"),
        (config.position not in ("learned", "none"), f"position='{config.position}'"),
        (len(set(config.block_heads)) > 1, "num_heads that differ from block to block"),
        (0 in config.block_heads, "blocks whose attention has no heads (num_heads 0)"),
        (config.dim_per_head * max(config.block_heads) != config.embed_dim, f"head_dim={config.dim_per_head}"),
        (len(set(config.block_mlp_dims)) > 1, "mlp_dim that differs from block to block"),
        (0 in config.block_mlp_dims, "blocks whose MLP has no neurons (mlp_dim 0)"),
    )


def _unheld_around(config: ViTConfig) -> list[str]:
    pooled = config.pool == "attention"
    neurons = int(config.embed_dim * config.mlp_ratio) == int(config.embed_dim * mlp_ratio(config))
    tokens = config.distilled
    return _chosen(
        (pooled and not neurons, "an MLP in the attention pooling of another width than in the blocks"),
        (
            pooled and (config.act or "gelu") != config.activation,
            "another activation in the pooling than in the blocks",
        ),
        (tokens and config.num_registers > 0, "registers beside a distillation token"),
        (tokens and config.position != "learned", f"a distillation token and position='{config.position}'"),
        (tokens and not config.prefix_position, "a distillation token without a position"),
        (tokens and config.mlp != "mlp", f"a distillation token and mlp='{config.mlp}'"),
    )


def _chosen(*clauses: tuple[bool, str]) -> list[str]:
    return [clause for applies, clause in clauses if applies]
