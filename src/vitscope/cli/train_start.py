"""What a run's settings start from: everyday flags, a model's name, a folder whose weights are taken over."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from vitscope.core.config import updated
from vitscope.core.errors import UsageError
from vitscope.core.run_layout import CONFIG, MODEL, is_run_folder, runs_in
from vitscope.core.suggest import did_you_mean
from vitscope.core.yaml import parse_yaml
from vitscope.data.config import DataConfig
from vitscope.models.variants import VARIANTS
from vitscope.train.config import ModelSection, named_model

SAVED = "config.json"
"""What tells a model folder."""


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
    from vitscope.weights.hub import is_hub_name  # torch comes with the next one
    from vitscope.weights.source import open_source

    path = Path(source).expanduser()
    here = path.is_file() or (is_hub_name(source) and not path.exists())
    opened = open_source(source if here else find_model_folder(source))
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


def find_model_folder(source: str | Path) -> Path:
    """The model folder that is meant: itself, or the one in a run's folder."""
    source = Path(source).expanduser()
    if (source / MODEL / SAVED).is_file():
        return source / MODEL
    if (source / SAVED).is_file():
        return source
    if is_run_folder(source):
        raise UsageError(
            f"the run '{source}' has no model yet",
            where=f"looked for {MODEL}/{SAVED} in it",
            fix=f"wait until its first epoch is over, or continue it: `vitscope train --resume --out {source}`",
        )
    if str(source) in VARIANTS and not source.exists():
        raise UsageError(
            f"'{source}' is the name of a model, and no weights come with it",
            where="--from takes a run, a model folder, a weights file, or a name on the hub",
            fix=f"`--model {source}` trains it from new weights{_published(str(source))}",
        )
    inside = runs_in(source)
    what = "holds no model" if source.exists() else "does not exist"
    near = did_you_mean(source.name, runs_in(source.parent))
    raise UsageError(
        f"'{source}' {what}",
        where=f"looked for {SAVED} and {MODEL}/{SAVED} in it",
        fix=f"it holds runs; name one, such as {source / inside[-1]}"
        if inside
        else near or "give a run or model folder",
    )


def _published(name: str) -> str:
    from vitscope.weights.pretrained import PRETRAINED

    return f"; `--model {name} --from {PRETRAINED[name].hub}` from published ones" if name in PRETRAINED else ""


def _name_in(run: Path, family: str) -> str:
    """What the run of a model called it, where that is a known name of the family; else the family's."""
    try:
        data: Any = parse_yaml((run / CONFIG).read_text(encoding="utf-8"))
        name = data["model"]["name"]
    except (OSError, ValueError, KeyError, TypeError):
        return family
    known = isinstance(name, str) and name in VARIANTS and VARIANTS[name].family == family
    return name if known else family
