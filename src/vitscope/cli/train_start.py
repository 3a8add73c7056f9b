"""What a run's settings start from: everyday flags, a model's name, a folder whose weights are taken over."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from vitscope.cli.model_source import SAVED, find_model, find_model_folder
from vitscope.core.config import updated
from vitscope.core.errors import UsageError, VitscopeError
from vitscope.core.run_layout import CONFIG
from vitscope.core.what_lies import what_lies_at
from vitscope.core.yaml import parse_yaml
from vitscope.data.config import DataConfig, PreprocessConfig
from vitscope.models.build import CONFIGS
from vitscope.models.variants import VARIANTS
from vitscope.train.config import ModelSection, named_model

if TYPE_CHECKING:
    from vitscope.weights.source import Source


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
    folder = _folder(name)
    if folder is not None:
        is_file = folder != Path(name).expanduser()
        raise UsageError(
            f"'{name}' is a {'file' if is_file else 'folder'}; by itself --model is a name",
            where="--model",
            fix=f"`--from {folder if is_file else name}` begins with its model and weights; "
            "new weights: a name of `vitscope models`",
        )
    return ModelSection.chosen({"name": name})


def from_source(source: str, parts: dict[str, Any], *, model: str | None) -> tuple[dict[str, Any], str]:
    """The sections with the model of a source, or the one named beside it, and with pictures prepared as it is used to;
    and where the weights are, as the run will know them."""
    try:
        return _from_source(source, parts, model=model)
    except VitscopeError as error:
        if error.fix is not None:
            from vitscope.train.weights_advice import in_flags

            error.fix = in_flags(error.fix)
        raise


def _from_source(source: str, parts: dict[str, Any], *, model: str | None) -> tuple[dict[str, Any], str]:
    from vitscope.weights.source import open_source  # torch comes with it

    with open_source(_found(source), alone=model is not None) as opened:
        if opened.config is None and model is None:
            _refuse_nameless(source, opened.weights)
        section, seen = _model_of(opened) if model is None else _model_beside(opened, model)
    parts = {**parts, "model": section}
    if seen is not None:
        parts["data"] = updated(
            parts["data"],
            mean=seen.mean,
            std=seen.std,
            interpolation=seen.interpolation,
            resize=seen.crop,
            crop_share=seen.crop_share,
            resizer=seen.resizer,
        )
    stands_for_its_folder = opened.layout != "file" and Path(source).is_file()
    return parts, str(opened.path) if stands_for_its_folder else source


def _found(source: str) -> str | Path:
    """As `find_model`, and folders that hold weights alone."""
    from vitscope.weights.source import holds_weights

    folder = Path(source).expanduser()
    what_lies_at(folder)  # or says why that cannot be told
    return folder if holds_weights(folder) and not (folder / SAVED).exists() else find_model(source)


def _model_of(opened: Source) -> tuple[ModelSection, PreprocessConfig | None]:
    saved: Any = opened.config
    model = getattr(saved, "encoder", saved)  # of a masked model, the encoder is what goes on
    name = str((opened.described or {}).get("architecture"))
    if name not in VARIANTS or VARIANTS[name].family != model.family:
        name = _name_in(opened.path.parent, model.family)
    return named_model(name, model), opened.preprocessing


def _model_beside(opened: Source, model: str) -> tuple[ModelSection, PreprocessConfig | None]:
    """The model that was named beside a source: by its name, or by a folder that describes it."""
    from vitscope.weights.brought import normalised
    from vitscope.weights.formats import recognised
    from vitscope.weights.given_config import as_its_weights, given_config
    from vitscope.weights.layers_for import asked_part
    from vitscope.weights.names import cleaned

    seen = opened.preprocessing
    folder = _folder(model)
    if folder is not None:
        folder = folder if (folder / SAVED).is_file() else find_model_folder(folder)
        given = given_config(folder, opened.weights)
        config: Any = getattr(given.config, "encoder", given.config)
        section = named_model(_name_in(folder.parent, config.family), config)
        seen = seen or given.preprocessing
    else:
        section = pick_model(model)
        if opened.config is not None and model in VARIANTS:
            bare = section.bare
            section = named_model(model, as_its_weights(bare, asked_part(opened.config, bare))[0])
    if seen is None and opened.config is None:
        stored = cleaned(opened.weights)
        known = recognised(stored, where=opened.words).normalisation(stored)
        seen = None if known is None else normalised(known, section.bare)
    return section, seen


def _folder(model: str) -> Path | None:
    """The folder that is meant by its path or by its config.json, as in `load_model(..., config=...)`; None: a name."""
    if model in VARIANTS or model in CONFIGS:
        return None
    path = Path(model).expanduser()
    lies = what_lies_at(path)
    if lies == "file" and path.name == SAVED:
        return path.parent
    return path if lies == "folder" else None


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
        fix=f"name it with --model, or a folder that describes it{shapes}",
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
