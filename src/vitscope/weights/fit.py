"""Do the parts of a saved model belong together? Weights, labels and preprocessing against the config."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from vitscope.core.config import shortened
from vitscope.core.errors import ConfigError, VitscopeError, expected
from vitscope.data.config import PreprocessConfig
from vitscope.models.build import build_model
from vitscope.models.config import ModelConfig, pair


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
