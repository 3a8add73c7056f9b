"""What a run's settings start from: everyday flags, a model's name, a folder whose weights are taken over."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vitscope.core.config import updated
from vitscope.core.errors import UsageError
from vitscope.core.run_layout import CONFIG, MODEL, is_run_folder, runs_in
from vitscope.core.suggest import did_you_mean
from vitscope.core.yaml import parse_yaml
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


def from_source(source: str, parts: dict[str, Any]) -> dict[str, Any]:
    """The sections with the model a folder holds, and with pictures prepared as it is used to."""
    from vitscope.weights.folder import PREPROCESSING, load_config, load_preprocessing  # torch comes with it

    folder = find_model_folder(source)
    saved: Any = load_config(folder)
    model = getattr(saved, "encoder", saved)  # of a masked model, the encoder is what goes on
    parts = {**parts, "model": named_model(_name_in(folder.parent, model.family), model)}
    if (folder / PREPROCESSING).exists():
        seen = load_preprocessing(folder)
        parts["data"] = updated(
            parts["data"],
            mean=seen.mean,
            std=seen.std,
            interpolation=seen.interpolation,
            resize=seen.crop,
            crop_share=seen.crop_share,
        )
    return parts


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
            where="--from takes a run or model folder",
            fix=f"`--model {source}` trains it from new weights",
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


def _name_in(run: Path, family: str) -> str:
    """What the run of a model called it, where that is a known name of the family; else the family's."""
    try:
        data: Any = parse_yaml((run / CONFIG).read_text(encoding="utf-8"))
        name = data["model"]["name"]
    except (OSError, ValueError, KeyError, TypeError):
        return family
    known = isinstance(name, str) and name in VARIANTS and VARIANTS[name].family == family
    return name if known else family
