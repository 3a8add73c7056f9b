"""timm's words into ours: an architecture's name, and the arguments that change it, as a config."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from vitscope.core.config import shortened, updated
from vitscope.core.errors import ConfigError, expected
from vitscope.core.suggest import nearest
from vitscope.models.config import ModelConfig, SwinConfig, ViTConfig
from vitscope.models.variants import model_config
from vitscope.weights.formats.damaged import refusing_damage

ALL = ("tiny", "small", "base", "large")
SHARED: dict[str, tuple[str, ...]] = {
    "vit_{}_patch16_224": ALL,
    "vit_{}_patch16_384": ALL,
    "vit_{}_patch32_224": ALL[1:],
    "vit_{}_patch32_384": ALL[1:],
    "vit_{}_patch8_224": ("small", "base"),
    "vit_{}_patch14_224": ("large", "huge"),
    "vit_{}_patch14_dinov2": ("small", "base", "large", "giant"),
    "vit_{}_patch14_reg4_dinov2": ("small", "base", "large", "giant"),
    "deit_{}_patch16_224": ALL[:3],
    "deit_{}_distilled_patch16_224": ALL[:3],
    "deit_{}_patch16_384": ("base",),
    "deit_{}_distilled_patch16_384": ("base",),
    "swin_{}_patch4_window7_224": ALL[:3],
    "swin_{}_patch4_window12_384": ("base",),
    "resnet{}": ("18", "34", "50"),
}
"""Names that mean the same network in timm and here, and the sizes there are."""
POOLS = {"cls": "token", "mean": "avg", "attention": "map"}
ACTIVATIONS = ("gelu", "gelu_tanh", "relu", "silu", "quick_gelu")
LAYERNORM_EPS = 1e-6
"""That of the LayerNorm timm calls 'layernorm'."""


@dataclass(frozen=True)
class Architecture:
    """A row of timm's table."""

    config: ModelConfig
    """What it is in our words, but for what follows."""
    pre_norm: bool = False
    """Whether there is a norm before the blocks, which no model here has."""


def _rows() -> dict[str, Architecture]:
    names = [pattern.format(size) for pattern, sizes in SHARED.items() for size in sizes]
    rows = {name: Architecture(model_config(name)) for name in names}
    # Of CLIP's towers one is here, for what only they have a name for: this eps. pre_norm can be switched off.
    clip = updated(model_config("vit_base_patch16_224"), norm_eps=1e-5)
    return {**rows, "vit_base_patch16_clip_224": Architecture(clip, pre_norm=True)}


ARCHITECTURES: dict[str, Architecture] = _rows()


def config_of(architecture: str, arguments: Mapping[str, Any], *, where: str) -> ModelConfig:
    """Our settings of a timm architecture, changed by the arguments its `create_model` would get."""
    row = ARCHITECTURES.get(architecture)
    if row is None:
        raise ConfigError(
            expected("architecture", "one that vitscope has too", shortened(architecture)),
            where=where,
            fix=_near(architecture),
        )
    given = Arguments({"pre_norm": row.pre_norm, **arguments}, where)
    changes: dict[str, Any] = {}
    for key in ("in_chans", "num_classes"):
        given.take(changes, key, key)
    given.take(changes, "drop_rate", "head_drop_rate", float)
    if isinstance(row.config, ViTConfig):
        _read_vit(row.config, given, changes)
    elif isinstance(row.config, SwinConfig):
        _read_swin(given, changes)
    else:
        _read_resnet(given, changes)
    given.refuse_the_rest()
    return updated(row.config, **changes)


def _near(architecture: str) -> str:
    ours = [name for name, row in ARCHITECTURES.items() if not row.pre_norm]  # CLIP's is here for its eps alone
    near = nearest(architecture, ours) or ["vit_base_patch16_224"]
    return (
        f"it has {', '.join(near)}; where the layers are the same, load the weights file by itself: "
        "load_model(file, config=the name of such a model)"
    )


class Arguments:
    """timm's arguments, crossed off one by one. What is left at the end would be lost."""

    harmless = ("weight_init", "fix_init", "dynamic_img_size", "dynamic_img_pad", "strict_img_size", "zero_init_last")
    """These decide how weights begin and which sizes are taken, not what is computed."""

    def __init__(self, given: Mapping[str, Any], where: str) -> None:
        self.left = {key: _tuples(value) for key, value in given.items() if value is not None}
        self.where = where

    def take(self, changes: dict[str, Any], theirs: str, ours: str, read: Callable[[Any], Any] = lambda it: it) -> None:
        """Their argument, if it is there, as our setting."""
        if theirs in self.left:
            with refusing_damage(self.where, f"model_args.{theirs}"):
                changes[ours] = read(self.left.pop(theirs))

    def take_one_of(self, changes: dict[str, Any], theirs: str, ours: str, words: Mapping[Any, Any]) -> None:
        if theirs not in self.left:
            return
        word = self.left.pop(theirs)
        if word not in tuple(words):  # which compares: a list cannot be looked up
            raise ConfigError(
                expected(f"model_args.{theirs}", " or ".join(map(repr, words)), shortened(word)),
                where=self.where,
                fix="no model here computes it",
            )
        changes[ours] = words[word]

    def must_be(self, value: Any, *names: str) -> None:
        """Arguments that have only this value here."""
        for name in names:
            self.take_one_of({}, name, name, {value: value})

    def refuse_the_rest(self) -> None:
        rest = {key: value for key, value in self.left.items() if key not in self.harmless}
        if rest:
            shown = ", ".join(f"{key}={shortened(value)}" for key, value in rest.items())
            raise ConfigError(
                f"model_args: vitscope has no setting for {shown}",
                where=self.where,
                fix="where it changes nothing, load the weights file by itself: load_model(file, config=...)",
            )


def _read_vit(row: ViTConfig, given: Arguments, changes: dict[str, Any]) -> None:
    for key in ("img_size", "patch_size", "embed_dim", "depth", "num_heads", "qkv_bias", "qk_norm", "class_token"):
        given.take(changes, key, key)
    given.take(changes, "reg_tokens", "num_registers")
    given.take(changes, "init_values", "layer_scale", lambda value: float(value) if value else None)
    given.take(changes, "no_embed_class", "prefix_position", lambda without: not without)
    given.take_one_of(changes, "pos_embed", "position", {"learn": "learned", "none": "none", "": "none"})
    given.take_one_of(changes, "act_layer", "act", {name: name for name in ACTIVATIONS})
    given.take_one_of(changes, "global_pool", "pool", {word: ours for ours, word in POOLS.items()})
    given.take_one_of(changes, "norm_layer", "norm_eps", {"layernorm": LAYERNORM_EPS})
    given.must_be(False, "pre_norm", "scale_attn_norm", "scale_mlp_norm", "pool_include_prefix", "patch_drop_rate")
    given.must_be(True, "final_norm", "proj_bias")
    if changes.get("pool") == "mean":
        given.left.setdefault("fc_norm", True)  # what timm takes where nothing is said: the mean before the norm
    given.must_be(False, "fc_norm")
    _read_dropout(given, changes, "pos_drop_rate", "proj_drop_rate")
    if "mlp_ratio" in given.left or "embed_dim" in changes:
        with refusing_damage(given.where, "model_args.mlp_ratio or embed_dim"):
            ratio = float(given.left.pop("mlp_ratio", mlp_ratio(row)))
            neurons = int(changes.get("embed_dim", row.embed_dim) * ratio)
        changes |= {"mlp_ratio": ratio, "mlp_dim": neurons // 2 if row.mlp == "swiglu" else None}


def _read_swin(given: Arguments, changes: dict[str, Any]) -> None:
    for key in ("img_size", "patch_size", "embed_dim", "depths", "num_heads", "window_size", "qkv_bias"):
        given.take(changes, key, key)
    given.take(changes, "mlp_ratio", "mlp_ratio", float)
    given.must_be("avg", "global_pool")
    given.must_be(False, "pre_norm", "always_partition")
    _read_dropout(given, changes, "proj_drop_rate")


def _read_resnet(given: Arguments, changes: dict[str, Any]) -> None:
    given.take(changes, "img_size", "img_size")
    given.take(changes, "layers", "depths")
    given.must_be("avg", "global_pool")
    given.must_be(False, "pre_norm")


def _read_dropout(given: Arguments, changes: dict[str, Any], *names: str) -> None:
    """One rate of ours is two of timm's for a ViT."""
    for key in ("attn_drop_rate", "drop_path_rate"):
        given.take(changes, key, key, float)
    with refusing_damage(given.where, f"model_args.{' or '.join(names)}"):
        rates = {float(given.left[name]) if name in given.left else 0.0 for name in names}
    if len(rates) == 1:
        changes["drop_rate"] = rates.pop()
        for name in names:
            given.left.pop(name, None)


def mlp_ratio(config: ViTConfig) -> float:
    """What timm multiplies the width by: SwiGLU's gate and value count together."""
    if config.mlp == "mlp" and config.mlp_dim is None:
        return config.mlp_ratio
    neurons = config.block_mlp_dims[0] * (2 if config.mlp == "swiglu" else 1)
    ratio = neurons / config.embed_dim
    return ratio if int(config.embed_dim * ratio) == neurons else (neurons + 0.5) / config.embed_dim


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value
