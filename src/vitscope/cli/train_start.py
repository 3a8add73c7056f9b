"""What a run's settings start from: everyday flags, a model's name, a folder whose weights are taken over."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from vitscope.cli.model_source import find_model
from vitscope.core.config import updated
from vitscope.core.errors import UsageError
from vitscope.core.run_layout import CONFIG
from vitscope.core.yaml import parse_yaml
from vitscope.data.config import DataConfig
from vitscope.models.variants import VARIANTS
from vitscope.train.config import ModelSection, named_model


def given_settings(command: Any, aliases: Mapping[str, tuple[str, str]]) -> dict[str, dict[str, Any]]:
    """Section -> what its everyday flags were given as."""
    given: dict[str, dict[str, Any]] = {}
    for flag, (section, key) in aliases.items():
        value = getattr(command, flag)
        if value is not None and value is not False:
            given.setdefault(section, {})[key] = value
    return given


def pick_model(name: str) -> ModelSection:
    """A model by name, or a family's plain form."""
    return ModelSection.chosen({"name": name})


def from_source(source: str, parts: dict[str, Any], *, model_is_named: bool) -> dict[str, Any]:
    """The sections with the model of a source, and with pictures prepared as it is used to."""
    from vitscope.weights.source import open_source  # torch comes with it

    opened = open_source(find_model(source))
    saved: Any = opened.config
    if saved is None:
        if not model_is_named:
            _refuse_nameless(source, opened.weights)
        return parts
    model = getattr(saved, "encoder", saved)  # of a masked model, the encoder is what goes on
    name = str((opened.described or {}).get("architecture"))
    if name not in VARIANTS or VARIANTS[name].family != model.family:
        name = _name_in(opened.path.parent, model.family)
    parts = {**parts, "model": named_model(name, model)}
    if opened.preprocessing is not None:
        seen = opened.preprocessing
        parts["data"] = updated(
            parts["data"],
            mean=seen.mean,
            std=seen.std,
            interpolation=seen.interpolation,
            resize=seen.crop,
            crop_share=seen.crop_share,
            resizer=seen.resizer,
        )
    return parts


def for_channels(data: DataConfig, in_chans: int) -> DataConfig:
    """A source's normalisation for a model of other channels, each of which takes the mean of the source's."""
    if data.mean is None or data.std is None or len(data.mean) == in_chans:
        return data
    mean, std = ((sum(values) / len(values),) * in_chans for values in (data.mean, data.std))
    return updated(data, mean=mean, std=std)


def _refuse_nameless(source: str, weights: Any) -> NoReturn:
    from vitscope.weights.fitting import fitting_models
    from vitscope.weights.names import cleaned

    fitting = fitting_models(cleaned(weights))
    shapes = f"; by their shapes these fit: {', '.join(fitting)}" if fitting else ""
    raise UsageError(
        "a bare weights file does not say which model it is for",
        where=f"--from {source}",
        fix=f"name it with --model{shapes}",
    )


def _name_in(run: Path, family: str) -> str:
    """What the run of a model called it, where that is a known name of the family; else the family's."""
    try:
        data: Any = parse_yaml((run / CONFIG).read_text(encoding="utf-8"))
        name = data["model"]["name"]
    except (OSError, ValueError, KeyError, TypeError):
        return family
    known = isinstance(name, str) and name in VARIANTS and VARIANTS[name].family == family
    return name if known else family
