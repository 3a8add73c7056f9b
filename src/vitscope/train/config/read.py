"""A run's settings from a YAML file, whose sections may also be written short: `model: vit_tiny`, `data: cifar10`,
`augment: strong`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vitscope.core.config import from_dict, refuse_unknown_keys, shortened
from vitscope.core.errors import ConfigError, UsageError, expected
from vitscope.core.yaml import parse_yaml
from vitscope.data.config import augmentation
from vitscope.train.config.model import ModelSection
from vitscope.train.config.train import TrainConfig

NAMED = ("model", "data")
"""Sections that a name alone stands for."""


def read_train_config(path: str | Path) -> TrainConfig:
    """The settings a YAML file holds: one written by hand, or the config.yaml of a run."""
    path = Path(path).expanduser()
    where = str(path)
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ConfigError(
            "cannot read the settings: the file is no text",
            where=where,
            fix="give the path of a YAML file; a file of weights to start from goes with --from",
        ) from None
    except (OSError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise ConfigError(f"cannot read the settings: {why}", where=where, fix="give the path of a YAML file") from None
    data = parse_yaml(text, where=where)
    if data is None:
        data = {}
    if not isinstance(data, dict):
        raise ConfigError(
            expected("settings", "sections such as `model: ...` and `data: ...`", shortened(data)),
            where=where,
            fix="`vitscope train --data digits --print-config` shows how such a file looks",
        )
    try:
        refuse_unknown_keys(TrainConfig, data, where=where)
        return from_dict(TrainConfig, _written_out(data, where), where=where)
    except UsageError as error:  # an unknown name in it tells only how many names there are
        error.where = error.where if (error.where or "").startswith(where) else where
        error.fix = error.fix or "correct the file there"
        raise


def _written_out(data: dict[str, Any], where: str) -> dict[str, Any]:
    """The short forms as mappings."""
    full = dict(data)
    for section in NAMED:
        if isinstance(full.get(section), str):
            full[section] = {"name": full[section]}
    for section, value in full.items():
        if section != "augment" and not isinstance(value, dict):
            wanted = "a name, or a mapping of settings" if section in NAMED else "a mapping of settings"
            raise ConfigError(
                expected(section, wanted, shortened(value)), where=where, fix=f"indent what is {section}'s"
            )
    if isinstance(full.get("augment"), str):
        model: Any = ModelSection.chosen(full.get("model", {}), where=f"{where} > model")
        try:
            full["augment"] = augmentation(full["augment"], side_of(model))
        except UsageError as error:
            raise ConfigError(error.what, where=f"{where} > augment", fix=error.fix or error.where) from None
    return full


def side_of(model: Any) -> int | tuple[int, int]:
    """Side of the pictures a model sees; a masked model's are its encoder's."""
    return getattr(model, "encoder", model).img_size
