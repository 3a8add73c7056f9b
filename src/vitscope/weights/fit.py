"""Do the parts of a saved model belong together? Weights, labels and preprocessing against the config."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

import torch

from vitscope.core.config import shortened, to_dict, updated
from vitscope.core.errors import ConfigError, VitscopeError, expected
from vitscope.data.config import PreprocessConfig
from vitscope.models.build import build_model
from vitscope.models.config import CNNConfig, MAEConfig, ModelConfig, ResNetConfig, SimMIMConfig, ViTConfig, pair


def refuse_weights(config: ModelConfig, tensors: Mapping[str, torch.Tensor], *, where: str, fix: str) -> None:
    """Refuse weights that `config` does not describe: what is written must be what can be read."""
    with torch.device("meta"):
        wanted = build_model(config).state_dict()
    refuse_mismatch(wanted, tensors, where=where, fix=fix)


def refuse_mismatch(
    wanted: Mapping[str, torch.Tensor], found: Mapping[str, torch.Tensor], *, where: str, fix: str
) -> None:
    shared = sorted(wanted.keys() & found.keys())
    shapes = [
        f"{name} {tuple(found[name].shape)} instead of {tuple(wanted[name].shape)}"
        for name in shared
        if wanted[name].shape != found[name].shape
    ]
    kinds = [
        f"{name} {found[name].dtype} instead of {wanted[name].dtype}"
        for name in shared
        if wanted[name].is_floating_point() != found[name].is_floating_point()
    ]
    faults = [
        f"{len(names)} {kind}: {', '.join(names[:5])}{' ...' if len(names) > 5 else ''}"
        for kind, names in (
            ("missing", sorted(wanted.keys() - found.keys())),
            ("unexpected", sorted(found.keys() - wanted.keys())),
            ("of another shape", shapes),
            ("of another kind", kinds),
        )
        if names
    ]
    if faults:
        raise VitscopeError(f"the weights do not fit the config; {'; '.join(faults)}", where=where, fix=fix)


def refuse_labels(labels: Sequence[str], num_classes: int, *, where: str | None = None, fix: str | None = None) -> None:
    if len(labels) != num_classes:
        wanted = f"{num_classes} names, one per class"
        raise ConfigError(expected("labels", wanted, len(labels)), where=where, fix=fix)


def refuse_nameless(labels: object, *, where: str | None = None) -> None:
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise ConfigError(expected("labels", "a list of names", shortened(labels)), where=where)


def refuse_preprocessing(
    preprocessing: PreprocessConfig, config: ModelConfig, *, where: str, fix: str | None = None
) -> None:
    """Pictures must come out at the size and with the channels the model is set to."""
    for name, wanted, received in (
        ("img_size", pair(config.img_size), preprocessing.img_size),
        ("in_chans", config.in_chans, preprocessing.in_chans),
    ):
        if received != wanted:
            other = "or call model.set_input_size first" if name == "img_size" else "or build the model with it"
            raise ConfigError(
                expected(f"preprocessing.{name}", f"the model's {wanted}", received),
                where=where,
                fix=fix or f"give preprocessing with {name}={wanted}, {other}",
            )


def fitted_preprocessing(preprocessing: PreprocessConfig | None, config: ModelConfig) -> PreprocessConfig | None:
    """The same for a model of another size or other channels, which take the mean of theirs."""
    if preprocessing is None:
        return None
    size = pair(config.img_size)
    if preprocessing.in_chans == config.in_chans:
        return preprocessing if preprocessing.img_size == size else updated(preprocessing, img_size=size)
    mean, std = (sum(values) / len(values) for values in (preprocessing.mean, preprocessing.std))
    count = config.in_chans
    return updated(preprocessing, img_size=size, in_chans=count, mean=(mean,) * count, std=(std,) * count)


FREE = {
    "num_classes",  # a new head, where they differ
    "img_size",  # positions are resampled
    "patch_size",  # so is the patch filter
    "in_chans",  # and the first layer's channels
    "mask_ratio",
    "drop_rate",
    "attn_drop_rate",
    "drop_path_rate",
    "head_drop_rate",
    "init",  # how weights begin, which are replaced
    "zero_init_last",
}
"""Settings that may differ from those of the weights' model."""


def refuse_other_layers(given: ModelConfig, asked: ModelConfig, *, where: str, fix: str = "") -> list[str]:
    """What is to be said of settings without weights that differ. `fix` is what else the asker can do."""
    other = f", or {fix}" if fix else ""
    if given.family != asked.family:
        raise ConfigError(
            expected("model.family", f"'{given.family}', of which the weights are", f"'{asked.family}'"),
            where=where,
            fix=f"name a model of that family{other}",
        )
    remarks, wanted = [], _layers(asked)
    for key, value in _layers(given).items():
        if value == wanted[key]:
            continue
        if key == "pool" and "attention" not in (value, wanted[key]):  # no weights belong to it
            remarks.append(f"pool is '{wanted[key]}' instead of '{value}'")
            continue
        shown = attrgetter(key)(given), attrgetter(key)(asked)
        theirs, ours = map(shortened, shown if shown[0] != shown[1] else (value, wanted[key]))
        raise ConfigError(
            expected(f"model.{key}", f"{theirs}, as the weights have it", ours),
            where=where,
            fix=f"set it to that{other}",
        )
    return remarks


def _layers(config: ModelConfig) -> dict[str, Any]:
    """The settings that decide which layers there are and what they compute, each in one form."""
    layers = {key: value for key, value in to_dict(config).items() if key not in FREE}
    if isinstance(config, MAEConfig | SimMIMConfig):
        del layers["encoder"]
        layers |= {f"encoder.{key}": value for key, value in _layers(config.encoder).items()}
    if isinstance(config, ViTConfig):
        del layers["mlp_ratio"]
        layers |= {
            "num_heads": config.block_heads,
            "head_dim": config.dim_per_head,
            "mlp_dim": config.block_mlp_dims,
            "act": config.activation,
            "layer_scale": config.layer_scale is not None,
            "prefix_position": config.prefix_position if config.position == "learned" else True,
        }
    if isinstance(config, ResNetConfig | CNNConfig):
        layers["inner_widths"] = config.block_widths
    return layers
